#include "viewer/app.hpp"

#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>
#include <stb/stb_image_write.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <deque>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include "viewer/canvas.hpp"
#include "viewer/export.hpp"
#include "viewer/inspector.hpp"
#include "viewer/panels.hpp"
#include "viewer/plots.hpp"
#include "viewer/session.hpp"

namespace viewer {

namespace {

constexpr float presenting_scale = 1.8f;
constexpr double steps_a_second = 2;  // at speed 1
constexpr std::array<double, 7> speeds{0.25, 0.5, 1, 2, 4, 8, 16};
constexpr double notice_time = 5;      // seconds
constexpr double patience = 60;        // seconds that a picture waits for a run to end
constexpr int frames_after_input = 3;  // ImGui needs a frame to notice, and one to settle
constexpr int frames_after_news = 2;   // what scrolls to its end stands there in the next one

// ---- The window of the system, and ImGui in it ----------------------------------------------------

class Window {
 public:
  Window(const AppOptions& options, const std::string& title);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  bool open() const { return glfwWindowShouldClose(window_) == 0; }
  void close() const { glfwSetWindowShouldClose(window_, GLFW_TRUE); }
  void title(const std::string& words);
  void copy(const std::string& words) const { glfwSetClipboardString(window_, words.c_str()); }

  // Waits for the mouse, a key, or news of the run, but at most so long; 0: does not wait.
  void events(double at_most);
  bool begin_frame(Fonts& fonts);              // false: minimised, there is nothing to draw on
  void end_frame(const std::string& picture);  // writes the frame into a PNG if a name is given

  float scale() const { return scale_; }
  bool touched() { return std::exchange(touched_, false); }  // since the last time
  std::vector<Act> keys() { return std::exchange(keys_, {}); }

 private:
  static Window& of(GLFWwindow* window) {
    return *static_cast<Window*>(glfwGetWindowUserPointer(window));
  }
  static void on_key(GLFWwindow* window, int key, int scancode, int action, int modifiers);
  static void on_letter(GLFWwindow* window, unsigned letter);
  void listen();
  void take_mouse();
  void write_picture(const std::string& file) const;

  GLFWwindow* window_ = nullptr;
  std::string title_;
  float scale_ = 1;
  bool touched_ = true;
  bool repeats_ = false;  // the last key is being held down
  std::vector<Act> keys_;

  // What the mouse did since the last frame, in order.
  struct MouseEvent {
    bool button = false, down = false;  // the left button went down or up; else a move
    ImVec2 at;
  };
  std::deque<MouseEvent> mouse_;
  MouseEvent mouse_now_{.at = {-FLT_MAX, -FLT_MAX}};
};

Window::Window(const AppOptions& options, const std::string& title) {
  glfwSetErrorCallback([](int, const char*) {});  // what matters is said below, once
  if (glfwInit() == GLFW_FALSE)
    throw std::runtime_error(
        "no window can be opened: there is no display. ./run shot 05 --to a.png draws one into a "
        "file, and ./run lesson 05 tells the lesson in the terminal");
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
  glfwWindowHint(GLFW_SCALE_TO_MONITOR, options.shot.empty() ? GLFW_TRUE : GLFW_FALSE);
  window_ = glfwCreateWindow(options.width, options.height, title.c_str(), nullptr, nullptr);
  if (window_ == nullptr) {
    glfwTerminate();
    throw std::runtime_error(
        "no window can be opened: this display has no OpenGL 3.3. ./run lesson 05 tells the lesson "
        "in the terminal, and ./run export 05 --to out writes its figures");
  }
  glfwMakeContextCurrent(window_);
  glfwSwapInterval(1);
  listen();
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui_ImplGlfw_InitForOpenGL(window_, true);  // calls our callbacks, too
  ImGui_ImplOpenGL3_Init("#version 330 core");
}

Window::~Window() {
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImGui::DestroyContext();
  glfwDestroyWindow(window_);
  glfwTerminate();
}

void Window::listen() {
  glfwSetWindowUserPointer(window_, this);
  glfwSetKeyCallback(window_, on_key);
  glfwSetCharCallback(window_, on_letter);
  glfwSetCursorPosCallback(window_, [](GLFWwindow* w, double x, double y) {
    of(w).mouse_.push_back({.at = {static_cast<float>(x), static_cast<float>(y)}});
    of(w).touched_ = true;
  });
  glfwSetMouseButtonCallback(window_, [](GLFWwindow* w, int button, int action, int) {
    if (button == GLFW_MOUSE_BUTTON_LEFT)
      of(w).mouse_.push_back({.button = true, .down = action == GLFW_PRESS, .at = {}});
    of(w).touched_ = true;
  });
  glfwSetScrollCallback(window_, [](GLFWwindow* w, double, double) { of(w).touched_ = true; });
  glfwSetCursorEnterCallback(window_, [](GLFWwindow* w, int entered) {
    if (entered == GLFW_FALSE) of(w).mouse_.push_back({.at = {-FLT_MAX, -FLT_MAX}});
    of(w).touched_ = true;
  });
  glfwSetWindowRefreshCallback(window_, [](GLFWwindow* w) { of(w).touched_ = true; });
  glfwSetFramebufferSizeCallback(window_, [](GLFWwindow* w, int, int) { of(w).touched_ = true; });
}

void Window::on_key(GLFWwindow* window, int key, int scancode, int action, int modifiers) {
  Window& self = of(window);
  if (action == GLFW_RELEASE) return;
  self.touched_ = true;
  self.repeats_ = action == GLFW_REPEAT;
  struct Named {
    int key;
    Act act;
  };
  static constexpr std::array<Named, 12> named{{{GLFW_KEY_RIGHT, Act::next},
                                                {GLFW_KEY_PAGE_DOWN, Act::next},
                                                {GLFW_KEY_LEFT, Act::previous},
                                                {GLFW_KEY_PAGE_UP, Act::previous},
                                                {GLFW_KEY_UP, Act::previous_episode},
                                                {GLFW_KEY_DOWN, Act::next_episode},
                                                {GLFW_KEY_HOME, Act::first},
                                                {GLFW_KEY_END, Act::last},
                                                {GLFW_KEY_ESCAPE, Act::leave},
                                                {GLFW_KEY_F1, Act::keys},
                                                {GLFW_KEY_KP_ADD, Act::faster},
                                                {GLFW_KEY_KP_SUBTRACT, Act::slower}}};
  for (const Named& one : named)
    if (one.key == key) self.keys_.push_back(one.act);
  const char* letter = glfwGetKeyName(key, scancode);
  const bool control = (modifiers & (GLFW_MOD_CONTROL | GLFW_MOD_SUPER)) != 0;
  if (control && letter != nullptr && std::string_view(letter) == "c")
    self.keys_.push_back(Act::copy_command);
}

// Letters come as the keyboard's layout types them, behind the key; with Control held none come. A
// letter that is held down counts once: it switches something.
void Window::on_letter(GLFWwindow* window, unsigned letter) {
  if (of(window).repeats_) return;
  if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
  if (letter == '-') of(window).keys_.push_back(Act::slower);
  for (const Key& key : all_keys)
    if (key.letter != 0 && static_cast<unsigned>(key.letter) == letter)
      of(window).keys_.push_back(key.act);
}

// A slow frame may hold a whole drag. So each frame takes moves up to the first press or release,
// and leaves the rest to the next one. (ImGui does so by itself from 1.87 on.)
void Window::take_mouse() {
  bool button = false;
  while (!mouse_.empty() && !button) {
    const MouseEvent event = mouse_.front();
    mouse_.pop_front();
    button = event.button;
    if (button)
      mouse_now_.down = event.down;
    else
      mouse_now_.at = event.at;
  }
  if (!mouse_.empty()) touched_ = true;
  // Two clicks are four frames apart, however long a frame takes.
  ImGui::GetIO().MouseDoubleClickTime = 0.3f + 4 * ImGui::GetIO().DeltaTime;
#if IMGUI_VERSION_NUM < 18700
  ImGui::GetIO().MousePos = mouse_now_.at;
  ImGui::GetIO().MouseDown[0] = mouse_now_.down;
#endif
}

void Window::title(const std::string& words) {
  if (words == title_) return;
  title_ = words;
  glfwSetWindowTitle(window_, words.c_str());
}

void Window::events(double at_most) {
  if (at_most > 0)
    glfwWaitEventsTimeout(at_most);
  else
    glfwPollEvents();
}

bool Window::begin_frame(Fonts& fonts) {
  int width = 0, height = 0, pixels = 0, lines = 0;
  glfwGetWindowSize(window_, &width, &height);
  glfwGetFramebufferSize(window_, &pixels, &lines);
  if (width <= 0 || height <= 0 || pixels <= 0 || lines <= 0) return false;
  // Some systems count a window's size in pixels, others in units of several pixels each.
  const float pixels_per_unit = static_cast<float>(pixels) / static_cast<float>(width);
  float content = 1, unused = 1;
  glfwGetWindowContentScale(window_, &content, &unused);
  scale_ = std::clamp(content / pixels_per_unit, 0.5f, 4.0f);
  if (fonts.begin_frame(pixels_per_unit)) touched_ = true;
  ImGui_ImplOpenGL3_NewFrame();
  ImGui_ImplGlfw_NewFrame();
  take_mouse();
  ImGui::NewFrame();
  return true;
}

void Window::end_frame(const std::string& picture) {
  ImGui::Render();
  int pixels = 0, lines = 0;
  glfwGetFramebufferSize(window_, &pixels, &lines);
  glViewport(0, 0, pixels, lines);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  if (!picture.empty()) write_picture(picture);
  glfwSwapBuffers(window_);
}

void Window::write_picture(const std::string& file) const {
  int width = 0, height = 0;
  glfwGetFramebufferSize(window_, &width, &height);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(width) *
                                   static_cast<std::size_t>(height) * 3);
  glPixelStorei(GL_PACK_ALIGNMENT, 1);
  glReadBuffer(GL_BACK);
  glReadPixels(0, 0, width, height, GL_RGB, GL_UNSIGNED_BYTE, bytes.data());
  stbi_flip_vertically_on_write(1);  // OpenGL's first row is the lowest
  if (stbi_write_png(file.c_str(), width, height, 3, bytes.data(), width * 3) == 0)
    throw std::runtime_error("the picture " + file + " cannot be written");
}

// ---- The application -----------------------------------------------------------------------------

class App {
 public:
  explicit App(const AppOptions& options);
  int run();

 private:
  Shown shown();
  void act(Act act);
  void step_on();
  void step_back();
  void change_speed(int by);
  void go_to_episode(int number);
  void export_figure();
  void copy_command();
  void notice(const std::string& words);
  void obey();
  void play(double now);
  double wait_for() const;
  bool waits_for_run(double now) const;
  bool settled() const { return scene_->settled && canvas_.settled(); }

  void frame(const std::string& picture);
  void style(const Theme& theme, float scale) const;
  void lay_out(const Paint& paint, Frame window, const Shown& shown);
  void lay_out_presenting(const Paint& paint, Frame window, const Shown& shown);
  void graph(const Paint& paint, Frame frame, const Shown& shown);
  void closer_look(const Paint& paint, Frame frame, const Shown& shown);

  void report(const Shown& shown);
  bool picture_is_due(double now);
  std::string cannot_be_shown() const;

  const AppOptions& options_;
  Window window_;
  Fonts fonts_;
  Desk desk_;
  Session session_;
  std::shared_ptr<const Scene> scene_ = std::make_shared<Scene>();

  Canvas canvas_;
  LessonList lessons_;
  OutputPane output_;
  SourcePane source_;
  TimelineBar timeline_bar_;
  Frame graph_frame_;
  float words_height_ = 0;  // of all the words, in the frame before

  int draw_frames_ = frames_after_input;  // that are still to be drawn without anything new
  double next_step_ = 0;                  // when play steps on
  std::string notice_;
  double notice_until_ = 0;
  std::ofstream report_;
  std::string reported_;
  int still_ = 0;  // frames since the scene has settled, for the picture
};

App::App(const AppOptions& options)
    : options_(options),
      window_(options, "minitensor"),
      session_(options, [] { glfwPostEmptyEvent(); }) {
  desk_.light = options.light && !options.present;  // to present is light already
  desk_.presenting = options.present;
  desk_.view.cover_gradients = options.cover;
  if (!options.report.empty()) report_.open(options.report, std::ios::app);
}

int App::run() {
  if (!session_.open(options_.target, desk_)) {
    std::cerr << "minitensor: there is no lesson and no file \"" << options_.target << "\"\n";
    return 2;
  }
  while (window_.open() && interrupted() == 0) {
    window_.events(wait_for());
    const double now = glfwGetTime();
    for (const Act key : window_.keys()) desk_.asked.push_back(key);
    obey();
    if (session_.update(desk_, now)) {
      draw_frames_ = std::max(draw_frames_, frames_after_news);
      if (const std::string why = session_.not_selected(desk_); !why.empty()) notice(why);
    }
    if (window_.touched()) draw_frames_ = frames_after_input;
    play(now);
    if (!notice_.empty() && now > notice_until_) {
      notice_.clear();
      draw_frames_ = 1;
    }
    if (draw_frames_ == 0 && settled() && options_.shot.empty()) continue;
    if (waits_for_run(now)) continue;
    draw_frames_ = std::max(0, draw_frames_ - 1);
    const bool last = picture_is_due(now);
    const bool empty = session_.timeline().steps().empty();
    if (last && !session_.running())
      if (const std::string why = cannot_be_shown(); !why.empty()) {
        std::cerr << "minitensor: " << why << '\n';
        if (!empty) return 2;  // else there is a picture of what went wrong
      }
    frame(last ? options_.shot : "");
    if (last) return empty ? 1 : 0;
  }
  return 0;
}

// Why a picture of a run that has ended is not what was asked for; empty if it is.
std::string App::cannot_be_shown() const {
  const Timeline& timeline = session_.timeline();
  if (timeline.steps().empty()) return session_.status();
  const std::string place = timeline.lacks(std::max(options_.episode, 1), options_.step);
  return place.empty() ? session_.not_selected(desk_) : place;
}

// How long nothing may happen without being missed.
double App::wait_for() const {
  if (waits_for_run(glfwGetTime())) return 0.02;
  if (draw_frames_ > 0 || !desk_.asked.empty() || desk_.lesson_asked || !options_.shot.empty())
    return 1e-3;
  if (!settled()) return 1.0 / 60;
  if (desk_.playing) return std::max(1e-3, next_step_ - glfwGetTime());
  if (!notice_.empty()) return std::max(1e-3, notice_until_ - glfwGetTime());
  return 0.35;  // the file may have been saved
}

// ---- What can be done ----------------------------------------------------------------------------

void App::step_on() {
  const Timeline& timeline = session_.timeline();
  const Cursor next = timeline.next(desk_.cursor, desk_.view.toggled);
  const auto episodes = static_cast<int>(timeline.episodes().size());
  if (next != desk_.cursor)
    desk_.cursor = next;
  else if (desk_.cursor.episode < episodes)
    desk_.cursor = timeline.start(desk_.cursor.episode + 1);
}

void App::step_back() {
  const Timeline& timeline = session_.timeline();
  const Cursor previous = timeline.previous(desk_.cursor, desk_.view.toggled);
  if (previous != desk_.cursor)
    desk_.stand(previous);
  else if (desk_.cursor.episode > 1)
    desk_.stand(timeline.end(desk_.cursor.episode - 1));
}

void App::go_to_episode(int number) {
  const Timeline& timeline = session_.timeline();
  const int last = static_cast<int>(timeline.episodes().size());
  const int wanted = std::clamp(number, 1, last);
  if (wanted != desk_.cursor.episode)
    desk_.stand(timeline.at(wanted, timeline.number(desk_.cursor)));
}

void App::change_speed(int by) {
  const auto count = static_cast<int>(speeds.size());
  const auto here = std::find(speeds.begin(), speeds.end(), desk_.speed);
  const int next = (static_cast<int>(here - speeds.begin()) + by + count) % count;
  desk_.speed = speeds[static_cast<std::size_t>(next)];
}

void App::notice(const std::string& words) {
  notice_ = words;
  notice_until_ = glfwGetTime() + notice_time;
}

void App::copy_command() {
  const std::string command = session_.command(desk_.cursor);
  window_.copy(command);
  notice("copied: " + command);
}

void App::export_figure() {
  const Timeline& timeline = session_.timeline();
  if (timeline.steps().empty()) return notice("There is nothing to export yet.");
  const std::int64_t step = timeline.number(desk_.cursor);
  ExportOptions wanted;
  wanted.to = options_.export_to;
  wanted.name = session_.name();
  if (desk_.cursor.episode != 1) wanted.name += "_episode_" + std::to_string(desk_.cursor.episode);
  wanted.name += "_step_" + std::to_string(step);
  wanted.episode = desk_.cursor.episode;
  wanted.step = step;
  wanted.toggled = desk_.view.toggled;
  try {
    const Exported exported = export_figures(timeline, wanted);
    std::string words = "wrote";
    for (const auto& file : exported.files) words += " " + file.string();
    notice(exported.note.empty() ? words : words + " (" + exported.note + ")");
  } catch (const std::exception& error) {
    notice(error.what());
  }
}

void App::act(Act act) {
  const Timeline& timeline = session_.timeline();
  switch (act) {
    case Act::none:
      break;
    case Act::next:
      desk_.following = desk_.playing = false;
      step_on();
      break;
    case Act::previous:
      step_back();
      break;
    case Act::first:
      desk_.stand(timeline.start(desk_.cursor.episode));
      break;
    case Act::last:
      desk_.stand(timeline.end(desk_.cursor.episode));
      desk_.following = session_.running() && desk_.cursor.episode == timeline.latest().episode;
      break;
    case Act::play:
      desk_.playing = !desk_.playing;
      desk_.following = false;
      next_step_ = glfwGetTime();
      break;
    case Act::faster:
      change_speed(+1);
      break;
    case Act::slower:
      change_speed(-1);
      break;
    case Act::next_episode:
      go_to_episode(desk_.cursor.episode + 1);
      break;
    case Act::previous_episode:
      go_to_episode(desk_.cursor.episode - 1);
      break;
    case Act::fit:
      canvas_.whole_or_following();
      break;
    case Act::present:
      desk_.presenting = !desk_.presenting;
      canvas_.follow_steps();
      break;
    case Act::cover:
      desk_.view.cover_gradients = !desk_.view.cover_gradients;
      desk_.view.uncovered.clear();
      break;
    case Act::export_figure:
      export_figure();
      break;
    case Act::copy_command:
      copy_command();
      break;
    case Act::theme:
      desk_.light = !desk_.light;
      break;
    case Act::keys:
      desk_.keys_shown = !desk_.keys_shown;
      break;
    case Act::stop:
      session_.stop();
      break;
    case Act::leave:
      if (desk_.keys_shown)
        desk_.keys_shown = false;
      else if (desk_.selected.kind != Item::Kind::none)
        desk_.selected = {};
      else if (desk_.presenting)
        this->act(Act::present);
      break;
  }
}

void App::obey() {
  for (const Act wanted : std::exchange(desk_.asked, {})) {
    act(wanted);
    draw_frames_ = frames_after_input;
  }
  if (!desk_.lesson_asked) return;
  session_.open_lesson(*std::exchange(desk_.lesson_asked, {}), desk_);
  canvas_.follow_steps();
  draw_frames_ = frames_after_input;
}

void App::play(double now) {
  if (!desk_.playing || now < next_step_) return;
  next_step_ = now + 1 / (steps_a_second * desk_.speed);
  const Cursor before = desk_.cursor;
  step_on();
  if (desk_.cursor == before && !session_.running()) desk_.playing = false;
  if (session_.timeline().pauses(before, desk_.cursor)) desk_.playing = false;
  draw_frames_ = frames_after_input;
}

// ---- What is drawn -------------------------------------------------------------------------------

Shown App::shown() {
  return Shown{.options = options_,
               .title = session_.title(),
               .file = session_.name(),
               .timeline = session_.timeline(),
               .made_at = session_.made_at(),
               .scene = scene_,
               .status = session_.status(),
               .running = session_.running(),
               .failed = session_.failed()};
}

void App::style(const Theme& theme, float scale) const {
  ImGuiStyle& style = ImGui::GetStyle();
  style.WindowPadding = style.ItemSpacing = style.FramePadding = {0, 0};
  style.WindowBorderSize = style.ChildBorderSize = 0;
  style.WindowMinSize = {1, 1};
  style.ScrollbarSize = 8 * scale;
  style.ScrollbarRounding = 4 * scale;
  style.GrabMinSize = 28 * scale;
  const auto set = [&](ImGuiCol which, ImU32 color) {
    style.Colors[which] = ImGui::ColorConvertU32ToFloat4(color);
  };
  set(ImGuiCol_ScrollbarBg, 0);
  set(ImGuiCol_ScrollbarGrab, theme.track);
  set(ImGuiCol_ScrollbarGrabHovered, theme.track_done);
  set(ImGuiCol_ScrollbarGrabActive, theme.track_done);
}

void App::graph(const Paint& paint, Frame frame, const Shown& shown) {
  graph_frame_ = frame;
  if (!shown.timeline.steps().empty()) return canvas_.draw(paint, frame, shown, desk_);
  canvas_.follow_steps();
  draw_no_graph(paint, frame, shown, desk_);
}

// The inspector, and below it what is plotted, if anything is.
void App::closer_look(const Paint& paint, Frame frame, const Shown& shown) {
  const float most = frame.height() * (desk_.presenting ? 0.5f : 0.6f);
  const float plots = std::min(plots_height(paint, frame.width(), shown, desk_), most);
  const float middle = std::round(frame.bottom - plots);
  draw_inspector(paint, {frame.left, frame.top, frame.right, middle}, shown, desk_);
  if (plots == 0) return;
  draw_plots(paint, {frame.left, middle, frame.right, frame.bottom}, shown, desk_);
  paint.rule(frame.left + paint.px(16), frame.right - paint.px(16), middle);
}

// The widths and heights are the design's; in a small window they give way in proportion.
void App::lay_out(const Paint& paint, Frame window, const Shown& shown) {
  const float left = std::min(paint.px(300), window.width() * 300 / 1440);
  const float right = window.right - std::min(paint.px(394), window.width() * 394 / 1440);
  const float top = window.top + paint.px(44);
  const float bar = paint.px(TimelineBar::height(shown));
  const float desk_height = std::min(bar + paint.px(140), window.height() * 0.5f);
  const float desk = window.bottom - desk_height;
  const float list = lessons_.height_in(desk - top, paint, shown);

  draw_top_bar(paint, {0, 0, window.right, top}, (left + right) / 2, shown, desk_);
  lessons_.draw(paint, {0, top, left, top + list}, shown, desk_);
  // The words end where the graph does; long ones may have more, but the output keeps some lines.
  const float least_output = window.bottom - paint.px(110);
  const float words_end =
      std::clamp(top + list + words_height_, desk, std::max(desk, least_output));
  words_height_ = draw_words(paint, {0, top + list, left, words_end}, shown, desk_);
  if (!shown.timeline.steps().empty() || !shown.failed)  // else it stands in the graph's place
    output_.draw(paint, {0, words_end, left, window.bottom}, shown, desk_);
  graph(paint, {left, top, right, desk}, shown);
  source_.draw(paint, {left, desk, right, window.bottom - bar}, shown, desk_);
  timeline_bar_.draw(paint, {left, window.bottom - bar, right, window.bottom}, shown, desk_);
  closer_look(paint, {right, top, window.right, window.bottom}, shown);

  paint.rule(paint.px(16), left - paint.px(16), top + list);
  paint.rule(left, right, desk);
  paint.upright(left, top, window.bottom);
  paint.upright(right, top, window.bottom);
}

void App::lay_out_presenting(const Paint& paint, Frame window, const Shown& shown) {
  const float right = window.right - std::min(paint.px(330), window.width() * 0.36f);
  const float source = window.bottom - std::min(paint.px(4 * 26 + 24), window.height() * 0.3f);
  // A low window is the graph's.
  const float bar = paint.px(44), top = bar < window.height() * 0.12f ? bar : 0;
  if (top > 0) draw_place(paint, {0, 0, right, top}, shown, desk_);
  graph(paint, {0, top, right, source}, shown);
  source_.draw(paint, {0, source, right, window.bottom}, shown, desk_);
  closer_look(paint, {right, 0, window.right, window.bottom}, shown);
  paint.rule(0, right, source);
  paint.upright(right, 0, window.bottom);
}

void App::frame(const std::string& picture) {
  if (!window_.begin_frame(fonts_)) return;
  const bool light = desk_.light != desk_.presenting;
  const Theme& theme = light ? light_theme : dark_theme;
  const float scale = window_.scale() * (desk_.presenting ? presenting_scale : 1);
  const Paint paint(fonts_, theme, scale);
  style(theme, window_.scale());
  desk_.pointed = {};
  if (!session_.timeline().steps().empty())
    scene_ = session_.stage().look(session_.timeline(), desk_.cursor, desk_.view, glfwGetTime());

  const ImVec2 size = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(size);
  ImGui::Begin("window", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoNav |
                   ImGuiWindowFlags_NoBackground | ImGuiWindowFlags_NoBringToFrontOnFocus);
  const Frame window{0, 0, size.x, size.y};
  paint.fill(window, theme.panel);
  const Shown shown = this->shown();
  window_.title(shown.title + " - minitensor");
  if (desk_.presenting)
    lay_out_presenting(paint, window, shown);
  else
    lay_out(paint, window, shown);
  ImGui::End();
  const Paint above(fonts_, theme, window_.scale());
  if (!notice_.empty()) draw_notice(above, graph_frame_, notice_);
  if (desk_.keys_shown) draw_keys(above, window, desk_);
  window_.end_frame(picture);

  if (!(desk_.pointed == desk_.pointed_before)) draw_frames_ = std::max(draw_frames_, 1);
  desk_.pointed_before = desk_.pointed;
  report(shown);
}

// ---- For tests and pictures ----------------------------------------------------------------------

// Nobody sees what is drawn before the run of a picture has ended, and the compiler needs the time.
bool App::waits_for_run(double now) const {
  return !options_.shot.empty() && session_.running() && now < patience - 2;
}

bool App::picture_is_due(double now) {
  if (options_.shot.empty()) return false;
  if (now > patience) {
    std::cerr << "minitensor: the run has not ended after a minute; this is how far it has come\n";
    return true;
  }
  still_ = session_.running() || !settled() ? 0 : still_ + 1;
  return still_ > 2 * frames_after_input;
}

// A word of the report: blanks would cut it in two, and the first = ends its name.
std::string word(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n' || c == '='; }, '_');
  return text.empty() ? "none" : text;
}

std::string at(ImVec2 place) {
  return std::to_string(std::lround(place.x)) + "," + std::to_string(std::lround(place.y));
}

std::string name_of(const Timeline& timeline, Item item) {
  if (item.kind == Item::Kind::tensor) return timeline.name(item.id);
  if (item.kind == Item::Kind::op) return timeline.describe_op(static_cast<std::size_t>(item.id));
  const ScopeOpens* scope = item.kind == Item::Kind::scope ? timeline.scope(item.id) : nullptr;
  return scope == nullptr ? "" : scope->name;
}

void App::report(const Shown& shown) {
  if (!report_.is_open() || !settled()) return;
  const Timeline& timeline = shown.timeline;
  std::string line = "lesson=" + word(shown.file);
  const auto say = [&](const char* name, const std::string& value) {
    line += std::string(" ") + name + "=" + word(value);
  };
  const auto flag = [&](const char* name, bool value) { say(name, value ? "1" : "0"); };
  say("episode", std::to_string(desk_.cursor.episode));
  say("episodes", std::to_string(timeline.episodes().size()));
  say("step", timeline.label(desk_.cursor));
  say("of", std::to_string(timeline.episode(desk_.cursor.episode).steps));
  const bool somewhere = timeline.step(desk_.cursor) != nullptr;
  say("phase", somewhere ? std::string(word_for(timeline.phase(desk_.cursor))) : "none");
  say("selection", name_of(timeline, desk_.selected));
  flag("playing", desk_.playing);
  flag("covered", desk_.view.cover_gradients);
  flag("presenting", desk_.presenting);
  flag("light", desk_.light);
  flag("keys", desk_.keys_shown);
  flag("running", shown.running);
  flag("output_end", output_.shows_end());
  say("status", shown.status);
  say("notice", notice_);
  for (const Curve& curve : timeline.chart(desk_.cursor))
    line +=
        " curve:" + word(curve.name) + "=" + std::to_string(timeline.plotted(desk_.cursor, curve));
  say("pictures", std::to_string(timeline.pictures(desk_.cursor).size()));
  // Where things are, for a mouse: the middle of each box and lesson, the ends of the steps' bar.
  for (const Box& box : scene_->boxes)
    if (const std::string name = name_of(timeline, box.item); !name.empty())
      line += " box:" + word(name) + "=" + at(canvas_.place_of(box.rect.center()));
  for (const Box& box : scene_->scopes)  // an open one: on its upper rim, where no other box is
    line += " scope:" + word(name_of(timeline, box.item)) + "=" +
            at(canvas_.place_of({box.rect.center().x, box.rect.y + 5}));
  for (std::size_t i = 0; i < options_.lessons.size() && !desk_.presenting; ++i)
    line += " lesson:" + options_.lessons[i].number + "=" + at(lessons_.place_of(i));
  if (!desk_.presenting)
    for (const auto& [name, place] : timeline_bar_.places())
      line += std::string(" button:") + name + "=" + at(place);
  line += " line=" + at(source_.place());
  const Frame overview = canvas_.overview();
  say("overview", overview.empty() ? "" : at(overview.low()) + "," + at(overview.high()));
  const Frame bar = timeline_bar_.bar();
  line += " bar=" + at({bar.left, (bar.top + bar.bottom) / 2}) + "," +
          std::to_string(std::lround(bar.right));
  if (line == reported_) return;
  reported_ = line;
  report_ << line << std::endl;  // flushed: a test waits for it
}

}  // namespace

int run_app(const AppOptions& options) {
  try {
    return App(options).run();
  } catch (const std::exception& error) {
    std::cerr << "minitensor: " << error.what() << '\n';
    return 2;
  }
}

}  // namespace viewer

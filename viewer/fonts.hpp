// Text that is sharp at every size: each glyph is drawn by FreeType once for every size at which it
// is on the screen, and kept in one texture. Only glyphs in use are ever drawn, so Greek,
// mathematics and (where a font for it is installed) Chinese, Japanese and Korean cost nothing
// until they appear.
#pragma once

#include <imgui.h>

#include <memory>
#include <string_view>

namespace viewer {

enum class Face { sans, bold, oblique, bold_oblique, mono, mono_bold };
inline constexpr int face_count = 6;

class Fonts {
 public:
  Fonts();  // throws std::runtime_error with one sentence when no font can be found
  ~Fonts();
  Fonts(const Fonts&) = delete;
  Fonts& operator=(const Fonts&) = delete;

  // Once a frame, before anything is drawn, with a current GL context. `pixels_per_unit` is the
  // framebuffer's scale. Answers true if the frame before lacked room for a glyph and should be
  // drawn again.
  bool begin_frame(float pixels_per_unit);

  // Sizes are in ImGui's units; text is UTF-8 and a single line.
  float width(Face face, float size, std::string_view text);
  float ascent(Face face, float size);   // baseline to the top of the tallest letters
  float descent(Face face, float size);  // baseline to the lowest tail, positive

  // `at` is the left end of the baseline.
  void draw(ImDrawList& list, Face face, float size, ImVec2 at, ImU32 color, std::string_view text);

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

// The next character of UTF-8 text, which is moved past it. Malformed bytes read as U+FFFD, one at
// a time.
char32_t next_character(std::string_view& text);

}  // namespace viewer

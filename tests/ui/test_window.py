#!/usr/bin/env python3
"""The viewer's window, driven by real keys and clicks.

    tests/ui/test_window.py build/minitensor [name of one test ...]

Each test opens the window in a display of its own (Xvfb), presses keys and moves the mouse (xdotool), and
waits for the line that the viewer writes after each change (--report). Nothing waits for time alone; a test
fails when the line that it waits for has not come within PATIENCE seconds.
"""

import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

PATIENCE = 240  # seconds; a busy machine may take a minute to compile a program
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


class Failure(Exception):
    pass


class Display:
    """An X server without a screen."""

    def __init__(self):
        read, write = os.pipe()
        self.server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", "1600x1000x24", "-nolisten", "tcp"],
            pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as pipe:
            number = pipe.readline().strip()
        if not number:
            raise Failure("Xvfb did not start")
        self.name = ":" + number

    def close(self):
        self.server.terminate()
        self.server.wait()


class Viewer:
    """One open window, and what it reports."""

    def __init__(self, program, display, folder, *arguments):
        self.folder = pathlib.Path(folder)
        self.report = self.folder / "report.txt"
        self.report.unlink(missing_ok=True)
        self.environment = dict(os.environ, DISPLAY=display.name, LIBGL_ALWAYS_SOFTWARE="1")
        self.environment.pop("WAYLAND_DISPLAY", None)
        self.log = open(self.folder / "viewer.log", "w+")
        self.process = subprocess.Popen(
            [program, "view", *arguments, "--report", str(self.report)],
            cwd=folder, env=self.environment, stdout=self.log, stderr=subprocess.STDOUT)

    def now(self):
        """What is shown, as a dictionary; empty before the first report."""
        if not self.report.exists():
            return {}
        lines = self.report.read_text().splitlines()
        return dict(word.split("=", 1) for word in lines[-1].split()) if lines else {}

    def wait(self, _what="", **wanted):
        """Waits until the report says all of this. A value may be a function that judges
        the word, or None: then the report must not have it."""
        def fits(state, name, value):
            word = state.get(name)
            if value is None:
                return word is None
            return word is not None and (value(word) if callable(value) else word == str(value))

        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            state = self.now()
            if state and all(fits(state, name, value) for name, value in wanted.items()):
                return state
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.log.seek(0)
        raise Failure(f"waited for {_what or wanted}, but the window shows {self.now()}\n"
                      f"exit code {self.process.poll()}; it said:\n{self.log.read()}")

    def xdotool(self, *words):
        subprocess.run(["xdotool", *map(str, words)], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL)

    def key(self, *names):
        for name in names:
            self.xdotool("key", name)

    def move(self, place):
        self.xdotool("mousemove", *place)

    def click(self, place, times=1):
        self.move(place)
        self.xdotool("click", "--repeat", times, "--delay", 60, 1)

    def drag(self, start, end):
        self.move(start)
        self.xdotool("mousedown", 1)
        steps = 8
        for i in range(1, steps + 1):
            self.move([start[k] + (end[k] - start[k]) * i // steps for k in (0, 1)])
        self.xdotool("mouseup", 1)

    def box(self, name):
        return place(self.wait(f"a box called {name}", **{"box:" + name: bool})["box:" + name])

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.log.close()


def place(word):
    """"12,34" -> [12, 34]"""
    return [int(part) for part in word.split(",")]


def check(holds, what):
    if not holds:
        raise Failure(what)


# ---- The tests: each opens its own window --------------------------------------------------------


def steps_forward_three_and_back_three(open_viewer):
    viewer = open_viewer("05", "--step", "10")
    viewer.wait(lesson="05_chain_rule", step=10, of=18, phase="backward", running=0)
    for step in (11, 12, 13):
        viewer.key("Right")
        viewer.wait(step=step)
    for step in (12, 11, 10):
        viewer.key("Left")
        viewer.wait(step=step)
    viewer.key("Next")  # Page down: a presenter's clicker
    viewer.wait(step=11)
    viewer.key("Prior")
    viewer.wait(step=10)


def jumps_to_the_ends(open_viewer):
    viewer = open_viewer("05", "--step", "5")
    viewer.wait(step=5, phase="forward")
    viewer.key("End")
    viewer.wait(step=18)
    viewer.key("Home")
    viewer.wait(step=0, phase="none")
    viewer.key("Left")  # stays where it is
    viewer.key("Right")
    viewer.wait(step=1)


def opens_a_lesson_at_its_beginning(open_viewer):
    viewer = open_viewer("05")
    viewer.wait(step=0, of=18, running=0)


def scrubs_along_the_timeline(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    state = viewer.wait(step=13, running=0)
    left, middle, right = place(state["bar"])

    def tick(step):
        return [left + (right - left) * step // 18, middle]

    viewer.drag(tick(13), tick(6))
    viewer.wait(step=6, phase="forward")
    viewer.click(tick(16))
    viewer.wait(step=16, phase="backward")


def selects_a_node_and_lets_go(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0, selection="none")
    viewer.click(viewer.box("y"))
    viewer.wait(selection="y")
    viewer.key("Right")
    viewer.wait(step=14, selection="y")  # the selection stays while one steps
    viewer.key("Escape")
    viewer.wait(selection="none")


def a_drag_moves_the_graph_and_selects_nothing(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0)
    start = viewer.box("x")
    viewer.drag(start, [start[0] + 120, start[1] + 60])
    viewer.wait(**{"box:x": f"{start[0] + 120},{start[1] + 60}", "selection": "none"})
    viewer.key("f")
    viewer.wait("the graph to fit again", **{"box:x": f"{start[0]},{start[1]}"})


def the_wheel_zooms_about_the_pointer(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0)
    x, z = viewer.box("x"), viewer.box("z")
    viewer.move(x)
    viewer.xdotool("click", 4)
    state = viewer.wait("z to move away", **{"box:z": lambda word: place(word)[0] > z[0] + 20})
    moved = place(state["box:x"])
    check(abs(moved[0] - x[0]) <= 1 and abs(moved[1] - x[1]) <= 1,
          f"the box under the pointer moved from {x} to {moved}")


def follows_the_steps_in_a_graph_that_is_too_wide(open_viewer):
    viewer = open_viewer("14", "--step", "1")  # 26 columns: too small to be read when all is seen
    state = viewer.wait(step=1, running=0, overview=lambda word: word != "none")
    first = place(state["box:drawn"])
    check(300 < first[0] < 1000, f"the first tensor is not in sight but at {first}")
    viewer.key("End")
    state = viewer.wait("the view to go along", **{
        "box:drawn": lambda word: place(word)[0] < 0, "box:bias": lambda word: place(word)[0] > 300})
    viewer.key("f")
    viewer.wait("the whole graph", overview="none", **{
        "box:drawn": lambda word: place(word)[0] > 300, "box:loss": lambda word: place(word)[0] < 1040})
    viewer.key("f")
    viewer.wait("the view of before", **{"box:drawn": state["box:drawn"], "box:bias": state["box:bias"]})
    left, top, right, bottom = place(state["overview"])
    viewer.click([left + 8, (top + bottom) // 2])  # the left end
    viewer.wait("the left end of the graph", **{"box:drawn": lambda word: place(word)[0] > 300})


def shows_what_is_selected_in_a_graph_that_is_too_wide(open_viewer):
    viewer = open_viewer("14", "--step", "1", "--select", "loss")  # at the other end of the graph
    viewer.wait(step=1, running=0, selection="loss",
                **{"box:loss": lambda word: 300 < place(word)[0] < 1040})
    viewer.key("Right")
    viewer.wait("the step to come into sight", step=2,
                **{"box:drawn": lambda word: 300 < place(word)[0] < 1040})


def switches_the_lesson(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    state = viewer.wait(step=13, running=0)
    viewer.click(place(state["lesson:04"]))
    viewer.wait(lesson="04_computation_graph", step=0, running=0, status="finished")
    viewer.key("Right")
    viewer.wait(lesson="04_computation_graph", step=1)


def buttons_do_what_keys_do(open_viewer):
    viewer = open_viewer("05", "--step", "5")
    state = viewer.wait(step=5, running=0)
    for button, step in (("next", 6), ("previous", 5), ("last", 18), ("first", 0)):
        viewer.click(place(state["button:" + button]))
        viewer.wait(step=step)
    viewer.click(place(state["button:play"]))
    viewer.wait(playing=1)
    viewer.click(place(state["button:play"]))
    viewer.wait(playing=0)


def a_line_of_the_source_selects_its_result(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    x, y = place(viewer.wait(step=13, running=0)["line"])
    viewer.click([x, y + 26])  # below c = x * y stands s = a + b
    viewer.wait(selection="s")


def a_double_click_opens_a_box_and_closes_it(open_viewer):
    viewer = open_viewer("13", "--episode", "2", "--step", "4")
    viewer.wait(running=0, episode=2)
    viewer.click(viewer.box("mse_loss"), times=2)
    state = viewer.wait("what is inside the box", **{"box:mse_loss": None, "box:guess_-_y": bool,
                                                             "scope:mse_loss": bool})
    viewer.click(place(state["scope:mse_loss"]), times=2)
    viewer.wait("the box to close", **{"box:mse_loss": bool, "box:guess_-_y": None})


def exports_a_figure_of_this_step(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0)
    viewer.key("e")
    viewer.wait("the figure to be written", notice=lambda word: word.startswith("wrote"))
    dot = viewer.folder / "05_chain_rule_step_13.dot"
    check(dot.exists() and "digraph" in dot.read_text(), "no dot file was written")


def covers_and_uncovers_gradients(open_viewer):
    viewer = open_viewer("05", "--step", "18")
    viewer.wait(step=18, running=0, covered=0)
    viewer.key("h")
    viewer.wait(covered=1)
    viewer.key("h")
    viewer.wait(covered=0)


def presents_and_comes_back(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0, presenting=0)
    viewer.key("p")
    viewer.wait(presenting=1)
    viewer.key("Next")
    viewer.wait(presenting=1, step=14)
    viewer.key("Escape")
    viewer.wait(presenting=0, step=14)


def shows_the_keys_and_changes_the_theme(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0)
    viewer.key("question")
    viewer.wait(keys=1)
    viewer.key("Escape")
    viewer.wait(keys=0)
    viewer.key("t")
    viewer.wait(light=1)


def copies_the_command_of_this_step(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0)
    viewer.key("ctrl+c")
    viewer.wait(notice="copied:_./run_view_05_--step_13")


def plays_to_the_end_and_stops(open_viewer):
    viewer = open_viewer("05", "--step", "15")
    viewer.wait(step=15, running=0)
    viewer.key("space")
    viewer.wait(step=18, playing=0)


def play_pauses_where_the_lesson_says_step(open_viewer):
    viewer = open_viewer("04", "--step", "1")
    viewer.wait(step=1, running=0)
    for step in (4, 5):  # s = x + y, z = s * w
        viewer.key("space")
        viewer.wait("play to pause", step=step, playing=0)


def a_chart_grows_with_the_steps(open_viewer):
    viewer = open_viewer("13", "--episode", "3")
    viewer.wait(running=0, episode=3, **{"curve:loss": "2"})
    viewer.key("Down")
    viewer.wait(episode=4, **{"curve:loss": "3"})
    viewer.key("Up")
    viewer.wait(episode=3, **{"curve:loss": "2"})


def survives_a_window_that_is_hidden_or_tiny(open_viewer):
    viewer = open_viewer("05", "--step", "13")
    viewer.wait(step=13, running=0)
    window = subprocess.run(["xdotool", "search", "--name", "minitensor"], env=viewer.environment,
                            check=True, capture_output=True, text=True).stdout.split()[-1]
    viewer.xdotool("windowsize", "--sync", window, 1, 1)
    viewer.xdotool("windowsize", "--sync", window, 1200, 700)
    viewer.xdotool("windowunmap", "--sync", window)
    viewer.xdotool("windowmap", "--sync", window)
    viewer.move([600, 300])
    viewer.key("Right")
    viewer.wait(step=14)


PROGRAM = """#include "minitensor.hpp"
using namespace mt;
int main() {
  auto x = tensor(2.0, {.requires_grad = true}).named("x");
  auto y = x * x;
  y.backward();
  %s
}
"""


def runs_a_program_anew_when_it_is_saved(open_viewer):
    def write(viewer_folder, body):
        path = viewer_folder / "mine.cpp"
        path.write_text(PROGRAM % body)
        return path

    folder = open_viewer.folder
    viewer = open_viewer(str(write(folder, "")), "--step", "2")
    first = viewer.wait(lesson="mine", step=2, running=0, status="finished", episodes=1)
    write(folder, "auto z = x + 1; (void)z;")
    viewer.wait("the longer run, at the same step", lesson="mine", step=2, running=0, episodes=2)
    write(folder, "auto z = ;")
    viewer.wait("the compiler's words", running=0, status=lambda word: "does_not_compile" in word)
    write(folder, "")
    viewer.wait("the first run again", running=0, status="finished", episodes=1, of=first["of"])


def the_output_stands_at_its_end_until_a_reader_scrolls(open_viewer):
    path = open_viewer.folder / "mine.cpp"
    print_lines = 'for (int i = 0; i < 200; ++i) std::cout << i << "\\n";'
    path.write_text(PROGRAM % (print_lines + " auto z = x + 1;" + print_lines + " auto v = x + 2;"))
    viewer = open_viewer(str(path))
    state = viewer.wait(running=0, status="finished", output_end=1)
    viewer.key("Home")
    viewer.wait(step=0)
    viewer.key("End")
    viewer.wait("the newest line again", step=state["step"], output_end=1)
    viewer.move([100, 800])
    viewer.xdotool("click", 4)
    viewer.wait("the lines before", output_end=0)
    viewer.key("Left")
    viewer.wait("no way back to the end", step=lambda word: word != state["step"], output_end=0)
    viewer.key("Right")
    viewer.wait(step=state["step"], output_end=0)
    viewer.xdotool("click", "--repeat", 5, "--delay", 60, 5)
    viewer.wait("the newest line", output_end=1)


def stops_a_program_that_never_ends(open_viewer):
    path = open_viewer.folder / "endless.cpp"
    path.write_text(PROGRAM % "for (;;) {}")
    viewer = open_viewer(str(path))
    state = viewer.wait("the endless loop", status="running", of=lambda word: int(word) >= 3,
                        **{"button:stop": bool})
    viewer.key("Home")  # the window answers while the program runs
    viewer.wait(step=0, running=1)
    viewer.click(place(state["button:stop"]))
    viewer.wait(running=0, status="stopped")


def a_picture_is_taken_without_a_reader(open_viewer):
    viewer = open_viewer("05", "--step", "13")  # only for its display
    target = viewer.folder / "picture.png"
    subprocess.run([open_viewer.program, "shot", "05", "--step", "13", "--to", str(target),
                    "--width", "1000", "--height", "640"], env=viewer.environment, check=True)
    head = target.read_bytes()[:24]
    check(head.startswith(b"\x89PNG"), "this is no PNG")
    check(struct.unpack(">II", head[16:24]) == (1000, 640), "the picture has another size")


def a_picture_that_cannot_be_is_told_to_scripts(open_viewer):
    viewer = open_viewer("05")  # only for its display
    target = viewer.folder / "picture.png"
    wrong = viewer.folder / "wrong.cpp"
    wrong.write_text("int main() { x }")

    def shot(*words):
        return subprocess.run([open_viewer.program, "shot", *words, "--to", str(target)],
                              env=viewer.environment, capture_output=True, text=True)

    late = shot("05", "--step", "99")
    check(late.returncode == 2 and "there is no step 99: episode 1 has 18" in late.stderr, late.stderr)
    check(not target.exists(), "a picture was written")
    nameless = shot("05", "--select", "q")
    check(nameless.returncode == 2 and
          'no tensor is called "q": episode 1 has x, y, a, b, c, s, z' in nameless.stderr,
          nameless.stderr)
    check(not target.exists(), "a picture was written")
    failed = shot(str(wrong))
    check(failed.returncode == 1 and "wrong.cpp does not compile" in failed.stderr, failed.stderr)
    check(target.exists(), "what the compiler said was not drawn")
    wrong.write_text('#include "minitensor.hpp"\nint main() { std::cout << 1; }')
    empty = shot(str(wrong))
    check(empty.returncode == 1 and "this program has made no tensor" in empty.stderr, empty.stderr)


TESTS = [value for name, value in list(globals().items())
         if callable(value) and getattr(value, "__code__", None)
         and value.__code__.co_varnames[:1] == ("open_viewer",)]


class Opener:
    """open_viewer(arguments...) opens a window; all are closed when the test is over."""

    def __init__(self, program, display, folder):
        self.program, self.display, self.folder = program, display, pathlib.Path(folder)
        self.opened = []

    def __call__(self, *arguments):
        self.opened.append(Viewer(self.program, self.display, self.folder, *arguments))
        return self.opened[-1]

    def close(self):
        for viewer in self.opened:
            viewer.close()


def run(test, program):
    """One test in a display and a folder of its own; answers what went wrong, or None."""
    with tempfile.TemporaryDirectory() as folder:
        display = Display()
        opener = Opener(program, display, folder)
        try:
            test(opener)
        except Failure as failure:
            return str(failure)
        except Exception:
            return traceback.format_exc()
        finally:
            opener.close()
            display.close()
    return None


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    missing = [tool for tool in ("Xvfb", "xdotool") if shutil.which(tool) is None]
    if missing:
        print("skipped: " + " and ".join(missing) + " are not installed (apt-get install xvfb xdotool)")
        return 0
    program, names = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]
    unknown = set(names) - {test.__name__ for test in TESTS}
    if unknown:
        print("no such test: " + ", ".join(sorted(unknown)))
        return 2
    failed = 0
    for test in TESTS:
        if names and test.__name__ not in names:
            continue
        begun = time.monotonic()
        wrong = run(test, program)
        print(f"{'FAILED' if wrong else 'passed'}  {test.__name__.replace('_', ' ')}  "
              f"({time.monotonic() - begun:.1f} s)", flush=True)
        if wrong:
            print(wrong, flush=True)
            failed += 1
    return 1 if failed else 0


sys.exit(main())

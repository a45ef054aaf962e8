// One pipe carries text and messages: whatever happens to it on the way, each comes out as it went
// in.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <random>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "viewer/frames.hpp"

using namespace viewer;

namespace {

const Token token = *token_from("00ff6d696e6974656e736f722d746f6b");

// What a reader got, in order: text as "text:...", messages as "message:...". Neighbouring text is
// one, since a pipe may cut it anywhere.
struct Received {
  std::vector<std::string> pieces;
  void text(std::string_view bytes) {
    if (pieces.empty() || !pieces.back().starts_with("text:")) pieces.emplace_back("text:");
    pieces.back() += bytes;
  }
  void message(std::string_view bytes) { pieces.push_back("message:" + std::string(bytes)); }
};

void feed(FrameReader& reader, Received& received, std::string_view bytes) {
  reader.feed(
      bytes, [&](std::string_view text) { received.text(text); },
      [&](std::string_view message) { received.message(message); });
}

std::vector<std::string> read_in_pieces(const std::string& stream, std::size_t length) {
  FrameReader reader(token);
  Received received;
  for (std::size_t i = 0; i < stream.size(); i += length)
    feed(reader, received, std::string_view(stream).substr(i, length));
  reader.finish([&](std::string_view text) { received.text(text); });
  return received.pieces;
}

struct TestPipe {
  int ends[2];
  TestPipe() { REQUIRE(pipe(ends) == 0); }
  ~TestPipe() {
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
  }
  // Everything until all writers are gone.
  std::string read_all() {
    close(ends[1]);
    ends[1] = -1;
    std::string all;
    char buffer[1 << 16];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      all.append(buffer, static_cast<std::size_t>(n));
    return all;
  }
};

std::string frame(std::uint32_t number, std::size_t piece, std::size_t pieces,
                  std::string_view part) {
  std::string bytes(token.begin(), token.end());
  frames::put(bytes, number, 4);
  frames::put(bytes, piece, 2);
  frames::put(bytes, pieces, 2);
  frames::put(bytes, part.size(), 2);
  return bytes.append(part);
}

TEST_CASE("a token survives being written as text, and other text is no token") {
  CHECK(token_from(hex(token)) == token);
  CHECK_FALSE(token_from("").has_value());
  CHECK_FALSE(token_from(hex(token) + "0").has_value());
  CHECK_FALSE(token_from("zz" + hex(token).substr(2)).has_value());
  CHECK_FALSE(token_from(hex(token).substr(2)).has_value());
}

TEST_CASE("text and messages come out in the order in which they went in, wherever the pipe cuts") {
  TestPipe pipe;
  FrameWriter writer(pipe.ends[1], token);
  const std::string long_message(10000, 'm');
  auto print = [&](std::string_view text) {
    REQUIRE(::write(pipe.ends[1], text.data(), text.size()) > 0);
  };
  print("before\n");
  writer.write("one");
  print("between");
  writer.write("");
  writer.write(long_message);
  print(std::string_view("after\0\xff", 7));
  const std::vector<std::string> expected{"text:before\n",
                                          "message:one",
                                          "text:between",
                                          "message:",
                                          "message:" + long_message,
                                          std::string("text:after\0\xff", 12)};
  const std::string stream = pipe.read_all();
  for (std::size_t length :
       {std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{4096}, stream.size()})
    CHECK(read_in_pieces(stream, length) == expected);
}

TEST_CASE("no frame is longer than what the system writes in one piece") {
  TestPipe pipe;
  FrameWriter(pipe.ends[1], token).write(std::string(20000, 'x'));
  const std::string stream = pipe.read_all();
  std::size_t begin = 0;
  const std::string mark(token.begin(), token.end());
  int count = 0;
  for (std::size_t next; begin < stream.size(); begin = next, ++count) {
    next = std::min(stream.find(mark, begin + 1), stream.size());
    CHECK(next - begin <= PIPE_BUF);
  }
  CHECK(count == 5);
}

TEST_CASE("text that looks like the beginning of a frame stays text") {
  const std::string mark(token.begin(), token.end());
  const std::string almost = mark.substr(0, 15);
  CHECK(read_in_pieces(almost + "!" + almost, 3) ==
        std::vector<std::string>{"text:" + almost + "!" + almost});
  CHECK(read_in_pieces(mark.substr(0, 4) + frame(0, 0, 1, "m"), 1) ==
        std::vector<std::string>{"text:" + mark.substr(0, 4), "message:m"});
}

TEST_CASE("text is not held back for more than the beginning of a token") {
  FrameReader reader(token);
  Received received;
  feed(reader, received, "no newline yet");
  CHECK(received.pieces == std::vector<std::string>{"text:no newline yet"});
}

TEST_CASE("a frame that was cut off by the end is dropped, and what stood before it stays") {
  const std::string whole = "text" + frame(0, 0, 1, "message") + frame(1, 0, 1, "cut off");
  const std::vector<std::string> expected{"text:text", "message:message"};
  CHECK(read_in_pieces(whole.substr(0, whole.size() - 1), 5) == expected);
  CHECK(read_in_pieces(whole.substr(0, whole.size() - 9), 5) == expected);
  CHECK(read_in_pieces(whole.substr(0, whole.size() - 15), 5) == expected);
}

TEST_CASE("pieces of two messages and text may stand between each other") {
  const std::string stream = frame(7, 0, 2, "a1") + "text" + frame(8, 0, 2, "b1") +
                             frame(8, 1, 2, "b2") + frame(7, 1, 2, "a2");
  CHECK(read_in_pieces(stream, 11) ==
        std::vector<std::string>{"text:text", "message:b1b2", "message:a1a2"});
}

TEST_CASE(
    "a message with a piece that is missing, repeated or beyond its end is dropped, and the next "
    "one is read") {
  const std::string good = frame(9, 0, 1, "good");
  for (const std::string& bad : {frame(1, 1, 2, "x"), frame(1, 0, 3, "x") + frame(1, 2, 3, "y"),
                                 frame(1, 0, 2, "x") + frame(1, 0, 2, "y"), frame(1, 2, 2, "x"),
                                 frame(1, 0, 0, "x"), frame(1, 65535, 65535, "x")}) {
    CHECK(read_in_pieces(bad + good, 13) == std::vector<std::string>{"message:good"});
  }
}

TEST_CASE("a program that begins messages without end is read with bounded memory") {
  FrameReader reader(token);
  Received received;
  for (std::uint32_t i = 0; i < 100000; ++i)
    feed(reader, received, frame(i, 0, 2, "never finished"));
  feed(reader, received, frame(200000, 0, 1, "good"));
  CHECK(received.pieces == std::vector<std::string>{"message:good"});
  CHECK(reader.waiting_messages() <= FrameReader::most_unfinished);
}

TEST_CASE("random bytes never break the reader, and a frame behind them is read") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string noise;
    for (std::size_t n = random() % 400; n > 0; --n) {
      if (random() % 50 == 0)
        noise.append(token.begin(), token.end());
      else
        noise += static_cast<char>(random());
    }
    noise.append(70000, ' ');  // more than any length that a frame can claim
    std::vector<std::string> pieces =
        read_in_pieces(noise + frame(0, 0, 1, "good"), 1 + random() % 5000);
    REQUIRE(!pieces.empty());
    CHECK(pieces.back() == "message:good");
  }
}

TEST_CASE("threads that print and threads that send do not tear each other's frames") {
  TestPipe pipe;
  FrameWriter writer(pipe.ends[1], token);
  constexpr int count = 2000;
  std::vector<std::thread> threads;
  for (char name : {'a', 'b'})
    threads.emplace_back([&, name] {
      for (int i = 0; i < count; ++i) writer.write(std::string(i % 3 == 0 ? 9000 : 9, name));
    });
  threads.emplace_back([&] {
    for (int i = 0; i < count; ++i)
      if (::write(pipe.ends[1], "line\n", 5) != 5) return;
  });
  std::string stream;
  std::thread reading([&] {
    char buffer[1 << 16];
    for (ssize_t n; (n = read(pipe.ends[0], buffer, sizeof buffer)) > 0;)
      stream.append(buffer, static_cast<std::size_t>(n));
  });
  for (std::thread& thread : threads) thread.join();
  close(std::exchange(pipe.ends[1], -1));
  reading.join();
  int messages = 0;
  std::string text;
  for (const std::string& piece : read_in_pieces(stream, 1000)) {
    if (piece.starts_with("text:")) {
      text += piece.substr(5);
      continue;
    }
    ++messages;
    const std::string bytes = piece.substr(8);
    REQUIRE((bytes.size() == 9 || bytes.size() == 9000));
    REQUIRE(bytes == std::string(bytes.size(), bytes[0]));
  }
  CHECK(messages == 2 * count);
  std::string lines;
  for (int i = 0; i < count; ++i) lines += "line\n";
  CHECK(text == lines);
}

TEST_CASE("a forked process does not send in its parent's name") {
  TestPipe pipe;
  FrameWriter writer(pipe.ends[1], token);
  pid_t child = fork();
  if (child == 0) {
    writer.write("not mine");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  writer.write("mine");
  CHECK(read_in_pieces(pipe.read_all(), 100) == std::vector<std::string>{"message:mine"});
}

TEST_CASE("a full non-blocking pipe is waited for, and a closed one silences the writer") {
  TestPipe pipe;
  fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  FrameWriter writer(pipe.ends[1], token);
  std::thread writing([&] { writer.write(std::string(1 << 20, 'x')); });
  std::string stream;
  char buffer[1 << 16];
  while (stream.size() < (1 << 20)) {
    ssize_t n = read(pipe.ends[0], buffer, sizeof buffer);
    REQUIRE(n > 0);
    stream.append(buffer, static_cast<std::size_t>(n));
  }
  writing.join();
  signal(SIGPIPE, SIG_IGN);
  close(std::exchange(pipe.ends[0], open("/dev/null", O_RDONLY)));
  writer.write("nobody reads this");
  writer.write("nor this");
  signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("the records of a message come apart as they were packed") {
  std::string message;
  pack(message, "first");
  pack(message, "");
  pack(message, std::string(300, 'x'));
  std::vector<std::string> records;
  CHECK(unpack(message, [&](std::string_view record) { records.emplace_back(record); }));
  CHECK(records == std::vector<std::string>{"first", "", std::string(300, 'x')});
}

TEST_CASE("a message that is no list of records is refused") {
  auto ignore = [](std::string_view) {};
  CHECK_FALSE(unpack("abc", ignore));
  CHECK_FALSE(unpack(std::string("\x05\0\0\0abcd", 8), ignore));
  CHECK_FALSE(unpack(std::string("\xff\xff\xff\xff", 4), ignore));
}

}  // namespace

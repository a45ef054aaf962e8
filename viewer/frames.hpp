// How records and printed text share one pipe, and come apart again in the order in which they
// happened.
//
// A watched program writes its records to the very pipe that is its stdout and stderr. A record
// travels in frames: a token of 16 random bytes that only the two ends know, a few numbers, and a
// piece of the record's message. A frame is at most PIPE_BUF bytes, and the system writes so few in
// one piece: text of another thread or of a child process may stand between two frames, never
// inside one. All that is not a frame is text that the program printed.
//
//   token (16) | number of the message (4) | piece (2) | pieces (2) | length (2) | `length` bytes
//
// A message is what one event sends: a list of records, each with its length (4) before it. Numbers
// are little-endian.
#pragma once

#include <limits.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace viewer {

using Token = std::array<char, 16>;

inline std::string hex(const Token& token) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (char c : token) {
    auto byte = static_cast<unsigned char>(c);
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

inline std::optional<Token> token_from(std::string_view text) {
  Token token{};
  if (text.size() != 2 * token.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t digit = std::string_view("0123456789abcdef").find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    token[i / 2] = static_cast<char>(token[i / 2] << 4 | static_cast<char>(digit));
  }
  return token;
}

namespace frames {

constexpr std::size_t header = 16 + 4 + 2 + 2 + 2;
constexpr std::size_t most_in_one = (PIPE_BUF < 4096 ? PIPE_BUF : 4096) - header;
constexpr std::size_t most_pieces = 0xffff;

inline void put(std::string& bytes, std::uint64_t number, int width) {
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
}
inline std::uint64_t get(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t number = 0;
  for (std::size_t i = width; i-- > 0;)
    number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

}  // namespace frames

// Adds one record's bytes to a message.
inline void pack(std::string& message, std::string_view record) {
  frames::put(message, record.size(), 4);
  message += record;
}

// Calls `visit(record)` for each record of a message. False if the message is not a list of
// records.
template <class Visit>
bool unpack(std::string_view message, Visit visit) {
  while (!message.empty()) {
    if (message.size() < 4) return false;
    std::size_t length = frames::get(message, 0, 4);
    message.remove_prefix(4);
    if (message.size() < length) return false;
    visit(message.substr(0, length));
    message.remove_prefix(length);
  }
  return true;
}

// The program's end. Threads may share one. It falls silent for good when nobody reads any more,
// and in a process that the program forked: what that does is no part of this run.
class FrameWriter {
 public:
  FrameWriter(int descriptor, const Token& token) : descriptor_(descriptor), token_(token) {}

  void write(std::string_view message) {
    std::size_t pieces = message.empty() ? 1 : (message.size() - 1) / frames::most_in_one + 1;
    if (pieces > frames::most_pieces || getpid() != owner_) return;
    std::uint32_t number = next_++;
    for (std::size_t piece = 0; piece < pieces && !silent_; ++piece) {
      std::string_view part = message.substr(piece * frames::most_in_one, frames::most_in_one);
      std::string frame(token_.begin(), token_.end());
      frames::put(frame, number, 4);
      frames::put(frame, piece, 2);
      frames::put(frame, pieces, 2);
      frames::put(frame, part.size(), 2);
      frame += part;
      write_all(frame);
    }
  }

 private:
  void write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno == EAGAIN) {  // somebody made the pipe non-blocking, and it is full
        pollfd full{descriptor_, POLLOUT, 0};
        poll(&full, 1, -1);
      } else if (errno != EINTR) {
        silent_ = true;
        return;
      }
    }
  }

  int descriptor_;
  Token token_;
  pid_t owner_ = getpid();
  std::atomic<std::uint32_t> next_{0};
  std::atomic<bool> silent_{false};
};

// The viewer's end: bytes in, as a pipe happens to cut them; text and whole messages out. It
// believes nothing: whatever the bytes are, it keeps no more than `most_pending` of them waiting.
class FrameReader {
 public:
  static constexpr std::size_t most_pending = 256 << 20;  // bytes
  static constexpr std::size_t most_unfinished = 1024;    // messages

  explicit FrameReader(const Token& token) : token_(token.begin(), token.end()) {}

  // Calls `text(std::string_view)` and `message(std::string_view)` in the order in which they were
  // written.
  template <class OnText, class OnMessage>
  void feed(std::string_view bytes, OnText text, OnMessage message) {
    buffer_ += bytes;
    std::string_view rest = buffer_;
    while (!rest.empty()) {
      std::size_t printed = text_before_token(rest);
      if (printed > 0) text(rest.substr(0, printed));
      rest.remove_prefix(printed);
      if (rest.size() < frames::header) break;  // nothing, or what may become a frame
      std::size_t length = frames::get(rest, 24, 2);
      if (rest.size() < frames::header + length) break;
      take(rest.substr(16, frames::header - 16), rest.substr(frames::header, length), message);
      rest.remove_prefix(frames::header + length);
    }
    buffer_.erase(0, buffer_.size() - rest.size());
  }

  std::size_t waiting_messages() const { return pending_.size(); }

  // The pipe is at its end: what waited to become a token was text. A frame that was cut off is
  // dropped.
  template <class OnText>
  void finish(OnText text) {
    if (!buffer_.empty() && buffer_.size() < token_.size()) text(std::string_view(buffer_));
    buffer_.clear();
    pending_.clear();
  }

 private:
  struct Pending {
    std::size_t next_piece = 0;
    std::string bytes;
  };

  // How many bytes of `rest` are surely text: up to a token, or up to an end that could be the
  // beginning of one.
  std::size_t text_before_token(std::string_view rest) const {
    std::size_t found = rest.find(token_);
    if (found != std::string_view::npos) return found;
    std::size_t maybe = std::min(rest.size(), token_.size() - 1);
    while (maybe > 0 &&
           rest.substr(rest.size() - maybe) != std::string_view(token_).substr(0, maybe))
      --maybe;
    return rest.size() - maybe;
  }

  template <class OnMessage>
  void take(std::string_view numbers, std::string_view part, OnMessage& message) {
    auto number = static_cast<std::uint32_t>(frames::get(numbers, 0, 4));
    std::size_t piece = frames::get(numbers, 4, 2), pieces = frames::get(numbers, 6, 2);
    if (piece == 0 && pieces == 1) return message(part);
    if (piece == 0) forget(number);
    if (waiting_ + part.size() > most_pending || pending_.size() >= most_unfinished) {
      pending_.clear();
      waiting_ = 0;
    }
    Pending& whole = pending_[number];
    if (piece != whole.next_piece || piece >= pieces) return forget(number);
    whole.bytes += part;
    waiting_ += part.size();
    if (++whole.next_piece < pieces) return;
    message(std::string_view(whole.bytes));
    forget(number);
  }

  void forget(std::uint32_t number) {
    auto found = pending_.find(number);
    if (found == pending_.end()) return;
    waiting_ -= found->second.bytes.size();
    pending_.erase(found);
  }

  std::string token_;
  std::string buffer_;
  std::map<std::uint32_t, Pending> pending_;  // by number of the message
  std::size_t waiting_ = 0;                   // bytes in `pending_`
};

}  // namespace viewer

// A program that writes to the viewer's pipe by hand, without a recorder and without good manners.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "viewer/frames.hpp"
#include "viewer/trace.hpp"

using namespace viewer;

namespace {

std::string message_of(const Event& event) {
  std::string message;
  pack(message, encode(event));
  return message;
}

std::string said(const std::string& text) { return message_of({Said{text}, {}, 0}); }

void print(const std::string& text) {
  if (write(1, text.data(), text.size()) < 0) std::abort();
}

}  // namespace

int main(int count, char** words) {
  const std::string way = count > 1 ? words[1] : "";
  const char* watch = std::getenv("MINITENSOR_WATCH");
  const std::optional<Token> token = token_from(watch ? watch : "");
  if (!token) return 2;
  FrameWriter writer(1, *token);
  if (way == "speak") {
    print("before");
    writer.write(said("one"));
    print("between");
    writer.write(said("two"));
    print("after");
  }
  if (way == "count")
    for (int i = 0; i < std::atoi(words[2]); ++i) writer.write(said(std::to_string(i)));
  if (way == "large") {  // 200 snapshots of 8,000 bytes
    for (Id storage = 1; storage <= 200; ++storage) {
      Snapshot snapshot;
      snapshot.storage = storage;
      snapshot.count = 1000;
      snapshot.dtype = DType::float64;
      snapshot.bytes.resize(8000);
      std::string message;
      pack(message, encode(snapshot));
      writer.write(message);
    }
  }
  if (way == "pictures") {
    const std::string picture =
        message_of({Pictured{"", 256, 256, std::vector<float>(256 * 256)}, {}, 0});
    for (int i = 0; i < 260; ++i) writer.write(picture);
    writer.write(said("good"));
  }
  if (way == "nonsense") {
    writer.write("this is not a list of records");
    std::string message;
    pack(message, "this is not a record");
    for (int i = 0; i < 1000; ++i) writer.write(message);
    print(std::string(token->begin(), token->end()));
    print(std::string(100000, ' '));
    writer.write(said("good"));
  }
  if (way == "lie") {  // about its end, and then goes on
    writer.write(message_of({Ended{Ended::How::threw, 0, "a lie"}, {}, 0}));
    writer.write(said("still here"));
  }
  if (way == "torn") {  // ends within a message, and within a frame
    writer.write(said("good"));
    print(std::string(token->begin(), token->end()) + "\x01");
  }
}

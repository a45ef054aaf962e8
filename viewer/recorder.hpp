// From tensors to a trace: listens to the header's observer and writes down what it is told, as
// plain data. This is the only file that knows tensors and traces both.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "minitensor.hpp"
#include "viewer/trace.hpp"

namespace viewer {

// Remembers which versions of which storages have been written down. One that has not been asked
// for while Snapshot::sent_again_after others were written down is forgotten.
class Remembered {
 public:
  // Whether it is new. From then on it is not.
  bool add(Id storage, std::int64_t version);

 private:
  using Versions = std::unordered_map<Id, std::int64_t>;  // the newest of each storage
  std::int64_t added_ = 0;                                // in the present half of that time
  Versions recent_, older_;  // asked for in this half, and in the one before
};

class Recorder : public minitensor::Observer {
 public:
  // Takes all records of one event together: what the event needs first, then the event.
  using Sink = std::function<void(std::vector<Record>&&)>;
  explicit Recorder(Sink sink) : sink_(std::move(sink)) {}

  void made(const minitensor::Tensor&, minitensor::Loc) override;
  void op(const minitensor::Node*, const minitensor::Facts&, const minitensor::Given&,
          minitensor::Span<const minitensor::Tensor*> inputs,
          minitensor::Span<minitensor::Tensor> outputs, minitensor::Loc) override;
  void failed(const char* op, const minitensor::Node*, minitensor::Span<Id> inputs,
              const std::string& text, minitensor::Loc) override;
  void pass_begins(const minitensor::PassSeen&) override;
  void pass_ends(std::int64_t pass) override;
  void arrived(std::int64_t pass, const minitensor::Node&, int slot,
               const minitensor::Tensor& before, const minitensor::Shape& folded_axes,
               const minitensor::Tensor& given) override;
  void hooked(std::int64_t pass, Id tensor, const minitensor::Tensor& before,
              const minitensor::Tensor& after) override;
  void landed(std::int64_t pass, const minitensor::Tensor& leaf, const minitensor::Tensor& before,
              const minitensor::Tensor& after) override;
  void wrote(const minitensor::Tensor&, std::int64_t version_before, const char* by,
             const minitensor::Node*, minitensor::Loc) override;
  void let_go(const minitensor::Tensor& leaf, minitensor::Loc) override;
  void named(const minitensor::Tensor&) override;
  void scope_opens(Id scope, const char* name, bool composed, minitensor::Loc) override;
  void scope_closes(Id scope) override;
  void note(const char* kind, const std::string& text, minitensor::Span<double> numbers) override;

 private:
  Seen seen(const minitensor::Tensor&);
  std::vector<Seen> seen(minitensor::Span<const minitensor::Tensor*>);
  Line line(minitensor::Loc);
  void keep_storage(const minitensor::Tensor&, const Seen&);
  void keep_facts(const minitensor::Facts&);
  void keep_source(const std::string& file);
  void send(What what, Line where = {});

  Sink sink_;
  std::vector<Record> records_;  // what the next event needs
  Remembered storages_;
  std::set<std::string> facts_, sources_;  // written down already
  std::vector<Id> scopes_;                 // open ones, the innermost last
  Line pass_line_;                         // of the running pass
};

}  // namespace viewer

// Reading what the header states about an operation.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/words.hpp"
#include "viewer/trace.hpp"

namespace viewer {

// The words of a text, such as the names of the attributes: "dim start" -> dim, start.
std::vector<std::string> split(std::string_view text);

// What an input of an op receives, as the facts state it. An op with any number of inputs has one
// text for all.
std::string_view derivative(const OpFacts* facts, int slot);

// An op's name for readers: "pow_number" is a pow.
std::string plain_name(const std::string& op, const OpFacts* facts);

// The letter of an input in the formulas: a, b, c; empty for those beyond.
std::string input_letter(std::size_t slot);

// What the names of an op's attributes stand for in its formulas: "n" for 3 in a pow.
words::Letters numbers_of(const Op& op, const OpFacts* facts);

}  // namespace viewer

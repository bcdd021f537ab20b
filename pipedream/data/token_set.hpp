#pragma once

#include <functional>

#include "pipedream/data/data_set.hpp"

namespace pipedream {

/// Sequences of tokens; sample i of length n is n + 1 tokens. `read` may be called by several threads.
struct TokenSequences {
  /// Number of sequences of `length` + 1 tokens.
  std::function<std::int64_t(std::int64_t length)> count;
  std::function<void(std::int64_t index, std::int64_t length, std::int64_t* tokens)> read;
};

/// The fields "tokens" [length] and "target" [length]: each target is the token that follows.
/// @throws InputError if there is not one sequence of that length
[[nodiscard]] std::shared_ptr<const DataSet> make_token_set(const TokenSequences& sequences, const std::vector<FieldSpec>& wanted,
                                                            const std::string& data_set);

}  // namespace pipedream

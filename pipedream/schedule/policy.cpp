#include "pipedream/schedule/policy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

struct PolicyName {
  VersionPolicy policy;
  std::string_view name, summary;
};

constexpr std::array<PolicyName, 6> kPolicies{{
    {VersionPolicy::Flush, "flush", "one version: the pipeline is empty at every step, as on one device"},
    {VersionPolicy::Stash, "stash", "a backward reads the version its forward read; a version per micro-batch in flight (PipeDream)"},
    {VersionPolicy::VerticalSync, "vertical-sync", "a micro-batch reads the same version on all stages"},
    {VersionPolicy::DoubleBuffer, "2bw",
     "two versions, every gradient one step late (PipeDream-2BW); needs as many micro-batches per step as ranks in the pipe"},
    {VersionPolicy::Predict, "predict", "a forward reads the weights predicted for its backward (PipeOptim)"},
    {VersionPolicy::None, "none", "overwrites the weights under micro-batches in flight; for experiments, asks for --unsafe"},
}};

}  // namespace

std::string_view name_of(VersionPolicy policy) { return kPolicies[static_cast<std::size_t>(policy)].name; }

VersionPolicy parse_policy(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PolicyName& entry : kPolicies) {
    if (entry.name == name) return entry.policy;
    names.push_back(entry.name);
  }
  throw UsageError(fmt::format("unknown version policy '{}'", name.substr(0, 40)), fmt::format("policies are {}", fmt::join(names, ", ")));
}

std::vector<VersionPolicy> chunk_policies(const Schedule& schedule) {
  const auto chunks = static_cast<std::size_t>(schedule.num_chunks());
  std::vector<VersionPolicy> policies;
  std::string_view rest = schedule.policy;
  for (std::size_t end = rest.find('/'); end != std::string_view::npos; end = rest.find('/')) {
    policies.push_back(parse_policy(rest.substr(0, end)));
    rest.remove_prefix(end + 1);
  }
  policies.push_back(parse_policy(rest));
  if (chunks % policies.size() != 0)
    throw UsageError(fmt::format("{} policies for {} chunks", policies.size(), chunks),
                     "give one policy, or one per chunk or equal part of the chunks, separated by '/'");
  std::vector<VersionPolicy> result;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) result.push_back(policies[chunk * policies.size() / chunks]);
  return result;
}

std::vector<std::pair<std::string, std::string>> list_policies() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const PolicyName& entry : kPolicies) result.emplace_back(entry.name, entry.summary);
  return result;
}

}  // namespace pipedream

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "pipedream/comm/c10d_link.hpp"
#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
constexpr std::int64_t kSmallBytes = std::int64_t{64} << 10;  // tensors below are summed together
constexpr std::size_t kPiecesInFlight = 3;

/// Part of the tensors, and its transfers. Member m of the group sums the slice m and hands it to the others.
struct Piece {
  at::Tensor flat;
  std::vector<at::Tensor> arriving;            // per member: its part of this member's slice
  std::vector<C10dLink::Work> parts, results;  // receives, per member
};

class GroupSum {
 public:
  GroupSum(C10dLink& link, const std::vector<int>& group)
      : link_(link), group_(group), own_(static_cast<std::size_t>(std::find(group.begin(), group.end(), link.rank()) - group.begin())) {
    PD_CHECK(own_ < group.size(), "rank {} sums over a group that it is not in", link.rank());
  }

  void run(std::vector<Piece>& pieces) {
    for (std::size_t i = 0; i < pieces.size() + kPiecesInFlight; ++i) {
      if (i < pieces.size()) start(pieces[i]);
      if (i >= kPiecesInFlight) add_up(pieces[i - kPiecesInFlight]);
    }
    for (auto& piece : pieces)
      for (std::size_t m = 0; m < group_.size(); ++m)
        if (piece.results[m]) link_.wait(piece.results[m], what(m));
    for (const auto& [member, work] : sends_) link_.wait(work, what(member));
  }

 private:
  [[nodiscard]] at::Tensor slice(const Piece& piece, std::size_t member) const {
    const auto n = piece.flat.numel(), members = static_cast<std::int64_t>(group_.size()), m = static_cast<std::int64_t>(member);
    return piece.flat.slice(0, n * m / members, n * (m + 1) / members);
  }
  [[nodiscard]] C10dLink::What what(std::size_t member) const {
    return
        [this, member] { return fmt::format("a part of the gradients that the replicas {} sum (rank {})", fmt::join(group_, ","), group_[member]); };
  }

  void start(Piece& piece) {
    const at::Tensor own = slice(piece, own_);
    piece.arriving.resize(group_.size());
    piece.parts.resize(group_.size());
    piece.results.resize(group_.size());
    for (std::size_t m = 0; m < group_.size(); ++m) {
      if (m == own_) continue;
      if (own.numel() > 0) {
        piece.arriving[m] = at::empty_like(own);
        piece.parts[m] = link_.receive(group_[m], collective_tag(CollectiveKind::Scatter, group_), piece.arriving[m]);
      }
      // Its result can only come after it has this member's part of the slice, so both may use the same memory.
      if (const at::Tensor other = slice(piece, m); other.numel() > 0)
        piece.results[m] = link_.receive(group_[m], collective_tag(CollectiveKind::Collect, group_), other);
    }
    for (std::size_t m = 0; m < group_.size(); ++m)
      if (const at::Tensor other = slice(piece, m); m != own_ && other.numel() > 0)
        sends_.emplace_back(m, link_.send(group_[m], collective_tag(CollectiveKind::Scatter, group_), other));
  }

  void add_up(Piece& piece) {
    at::Tensor own = slice(piece, own_), sum;
    if (own.numel() == 0) return;
    for (std::size_t m = 0; m < group_.size(); ++m) {
      if (m != own_) link_.wait(piece.parts[m], what(m));
      const at::Tensor& part = m == own_ ? own : piece.arriving[m];
      if (!sum.defined()) sum = part;
      else sum.add_(part);
    }
    if (!sum.is_same(own)) own.copy_(sum);
    piece.arriving.clear();
    for (std::size_t m = 0; m < group_.size(); ++m)
      if (m != own_) sends_.emplace_back(m, link_.send(group_[m], collective_tag(CollectiveKind::Collect, group_), own));
  }

  C10dLink& link_;
  const std::vector<int>& group_;
  std::size_t own_;
  std::vector<std::pair<std::size_t, C10dLink::Work>> sends_;
};

}  // namespace

void sum_over_group(C10dLink& link, const std::vector<int>& group, std::vector<at::Tensor>& tensors) {
  const c10::NoGradGuard no_grad;
  std::vector<Piece> pieces;
  std::map<at::ScalarType, std::vector<std::size_t>> small;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    PD_CHECK(tensors[i].defined() && tensors[i].is_contiguous(), "a tensor to sum is undefined or not contiguous");
    if (tensors[i].numel() == 0) continue;
    if (static_cast<std::int64_t>(tensors[i].nbytes()) < kSmallBytes) {
      small[tensors[i].scalar_type()].push_back(i);
      continue;
    }
    for (const auto& part :
         tensors[i].view({-1}).split(std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(tensors[i].element_size()))))
      pieces.push_back({part, {}, {}, {}});
  }
  std::vector<std::pair<at::Tensor, std::vector<std::size_t>>> together;
  for (const auto& [type, indices] : small) {
    std::vector<at::Tensor> flat;
    for (const auto i : indices) flat.push_back(tensors[i].view({-1}));
    together.emplace_back(at::cat(flat), indices);
    pieces.push_back({together.back().first, {}, {}, {}});
  }
  GroupSum(link, group).run(pieces);
  for (const auto& [flat, indices] : together) {
    std::int64_t at = 0;
    for (const auto i : indices) {
      tensors[i].view({-1}).copy_(flat.slice(0, at, at + tensors[i].numel()));
      at += tensors[i].numel();
    }
  }
}

}  // namespace pipedream

#include "pipedream/comm/c10d.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "pipedream/comm/c10d_link.hpp"
#include "pipedream/comm/c10d_outbox.hpp"
#include "pipedream/comm/c10d_summer.hpp"
#include "pipedream/core/bytes.hpp"
#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kHeaderBytes = 1024;
// Parts of a message, as its tags tell them apart. Tensors beyond the range share tags, in order.
constexpr int kHeaderPart = 0, kLongHeaderPart = 1, kPostedParts = 2, kLateParts = 33, kPartsOfAKind = 31;
static_assert(kLateParts + kPartsOfAKind <= kMessageParts);

/// What a message says of one of its tensors.
struct TensorSchema {
  bool defined = false;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t bytes = 0;
};

/// What a header says: the key, the sizes that the receives of payloads are posted with, and the tensors.
struct Header {
  MessageKey key;
  std::vector<std::int64_t> capacity;
  std::vector<TensorSchema> tensors;
};

std::string header_of(const MessageKey& key, const std::vector<std::int64_t>& capacity, const std::vector<at::Tensor>& tensors) {
  ByteWriter writer;
  writer.put(key);
  writer.put(capacity);
  writer.put(tensors.size());
  for (const auto& tensor : tensors) {
    writer.put(tensor.defined());
    if (!tensor.defined()) continue;
    writer.put(static_cast<int>(tensor.scalar_type()));
    writer.put(tensor.sizes().vec());
  }
  return writer.take();
}

Header parse_header(std::string_view bytes) {
  ByteReader reader(bytes);
  Header header;
  header.key = reader.get<MessageKey>();
  header.capacity = reader.get_vector<std::int64_t>();
  const auto count = reader.get<std::size_t>();
  if (count > bytes.size()) throw RankError("a message between ranks is cut short");
  header.tensors.resize(count);
  for (auto& schema : header.tensors) {
    schema.defined = reader.get<bool>();
    if (!schema.defined) continue;
    schema.type = static_cast<at::ScalarType>(reader.get<int>());
    schema.sizes = reader.get_vector<std::int64_t>();
    schema.bytes = static_cast<std::int64_t>(at::elementSize(schema.type));
    for (const auto size : schema.sizes) schema.bytes *= size;
  }
  return header;
}

at::Tensor bytes_tensor(std::int64_t size) { return at::empty({std::max<std::int64_t>(1, size)}, at::kByte); }

at::Tensor bytes_tensor_of(std::string_view text, std::int64_t size) {
  at::Tensor tensor = at::zeros({size}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

/// Sizes that the receives of an edge's payloads are posted with: those of its first message. The header of every message tells them, and every
/// message brings something for each of these receives; what does not fit travels after its header. They grow at barriers, when no message is
/// on its way: both ends have seen the same ones by then.
struct EdgeSizes {
  bool known = false;
  std::vector<std::int64_t> capacity, largest;
  void see(const std::vector<std::int64_t>& bytes) {
    largest.resize(std::max(largest.size(), bytes.size()), 0);
    for (std::size_t i = 0; i < bytes.size(); ++i) largest[i] = std::max(largest[i], bytes[i]);
  }
  void learn(const std::vector<std::int64_t>& sizes) {
    if (!known) capacity = sizes;
    known = true;
  }
};

bool fits(const std::vector<std::int64_t>& capacity, std::size_t i, std::int64_t bytes) { return i < capacity.size() && bytes <= capacity[i]; }

using Edge = std::tuple<int, int, int, bool>;  // peer, source chunk, target chunk, gradient

Edge edge_of(int peer, const MessageKey& key) { return {peer, key.source_chunk, key.target_chunk, key.gradient}; }

int part_tag(const MessageKey& key, int part) { return message_tag(key.source_chunk, key.target_chunk, key.gradient, key.micro_batch, part); }
int posted_tag(const MessageKey& key, std::size_t i) { return part_tag(key, kPostedParts + static_cast<int>(i % kPartsOfAKind)); }
int late_tag(const MessageKey& key, std::size_t i) { return part_tag(key, kLateParts + static_cast<int>(i % kPartsOfAKind)); }

class C10dTransport final : public Transport {
 public:
  explicit C10dTransport(std::shared_ptr<ControlGroup> control) : link_ptr_(std::make_shared<C10dLink>(std::move(control))) {
    barrier_for("the other ranks to connect");
  }
  C10dTransport(const C10dTransport& other, bool is_aside) : link_ptr_(other.link_ptr_), is_aside_(is_aside), bytes_(other.bytes_) {}

  [[nodiscard]] int rank() const override { return link_.rank(); }
  [[nodiscard]] int num_ranks() const override { return link_.num_ranks(); }

  void send(int to, const MessageKey& key, Tensors tensors, int bounded) override {
    if (to == rank()) {
      PD_CHECK(local_.emplace(key, std::move(tensors)).second, "{} was sent twice", describe(key));
      return;
    }
    const Edge edge = edge_of(to, key);
    auto& outbox = outboxes_[edge];
    if (!outbox) outbox = std::make_unique<C10dOutbox>(link_);
    if (bounded > 0) wait_for_room(*outbox, to, key, bounded);
    for (auto& tensor : tensors) {
      if (!tensor.defined()) continue;
      if (!tensor.device().is_cpu()) throw UsageError("gloo moves tensors of CPUs only", "choose another backend or --transport threads");
      tensor = tensor.contiguous();
    }
    outbox->put(start_sends(to, key, tensors, sent_[edge]));
  }

  void post_receive(int from, const MessageKey& key) override {
    if (from == rank() || incoming_.count({from, key}) > 0) return;
    Incoming message;
    message.header = bytes_tensor(kHeaderBytes);
    message.header_work = link_.receive(from, part_tag(key, kHeaderPart), message.header);
    auto& posted = incoming_.emplace(std::make_pair(from, key), std::move(message)).first->second;
    if (const auto& sizes = received_[edge_of(from, key)]; sizes.known) post_payloads(posted, from, key, sizes.capacity);
  }

  Tensors receive(int from, const MessageKey& key) override {
    if (from == rank()) return take_local(key);
    post_receive(from, key);
    auto node = incoming_.extract({from, key});
    Incoming& message = node.mapped();
    const auto what = [&] { return fmt::format("{} (rank {})", describe(key), from); };
    wait(message.header_work, what);
    const Header header = read_header(message, from, key);
    learn_sizes(from, key, header.capacity);
    if (message.payloads.empty()) post_payloads(message, from, key, header.capacity);
    std::vector<Payload> late(header.tensors.size());
    std::vector<std::int64_t> bytes;
    for (std::size_t i = 0; i < header.tensors.size(); ++i) {
      bytes.push_back(header.tensors[i].bytes);
      if (bytes[i] == 0 || fits(header.capacity, i, bytes[i])) continue;
      late[i].first = bytes_tensor(bytes[i]);
      late[i].second = link_.receive(from, late_tag(key, i), late[i].first);
    }
    received_[edge_of(from, key)].see(bytes);
    for (const auto& [buffer, work] : message.payloads) wait(work, what);
    Tensors tensors;
    for (std::size_t i = 0; i < late.size(); ++i) {
      if (late[i].second) wait(late[i].second, what);
      tensors.push_back(as_tensor(header.tensors[i], late[i].second || i >= message.payloads.size() ? late[i].first : message.payloads[i].first));
    }
    return tensors;
  }

  [[nodiscard]] bool sums_in_background() const override { return true; }
  void start_all_reduce(const std::vector<int>& group, const Tensors& tensors) override {
    if (group.size() < 2) return;
    count_sum(group, tensors);
    if (!summer_) summer_ = std::make_unique<C10dSummer>(link_);
    summer_->put(group, tensors);
  }
  void finish_all_reduces() override {
    if (summer_) summer_->finish();
  }

  void all_reduce(const std::vector<int>& group, Tensors& tensors) override {
    if (group.size() < 2) return;
    finish_all_reduces();  // sums of a group keep their order
    count_sum(group, tensors);
    sum_over_group(link_, group, tensors);
  }

  void count_sum(const std::vector<int>& group, const Tensors& tensors) {
    const auto members = static_cast<std::int64_t>(group.size());
    std::int64_t all = 0;
    for (const auto& tensor : tensors) all += static_cast<std::int64_t>(tensor.nbytes());
    *bytes_ += 2 * all * (members - 1) / members;
  }

  std::unique_ptr<Transport> for_another_thread() override { return std::make_unique<C10dTransport>(*this, true); }

  void barrier() override {
    barrier_for("the other ranks at the start or end of a pass");
    for (auto* sizes : {&sent_, &received_})
      for (auto& [edge, size] : *sizes) size.capacity = size.largest;
  }

  std::vector<std::string> gather(std::string bytes) override {
    if (rank() != 0) {
      const at::Tensor size = at::full({1}, static_cast<std::int64_t>(bytes.size()), at::kLong);
      const auto first = link_.send(0, collective_tag(CollectiveKind::Gather, {}), size);
      const at::Tensor payload = bytes_tensor_of(bytes, std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes.size())));
      const auto second = link_.send(0, collective_tag(CollectiveKind::GatherBytes, {}), payload);
      const auto what = [] { return std::string("rank 0 to take the results"); };
      wait(first, what);
      wait(second, what);
      return {};
    }
    std::vector<std::string> result(static_cast<std::size_t>(num_ranks()));
    result[0] = std::move(bytes);
    for (int from = 1; from < num_ranks(); ++from) {
      const auto what = [&] { return fmt::format("the results of rank {}", from); };
      const at::Tensor size = at::zeros({1}, at::kLong);
      wait(link_.receive(from, collective_tag(CollectiveKind::Gather, {}), size), what);
      const auto length = size.item<std::int64_t>();
      const at::Tensor payload = bytes_tensor(length);
      wait(link_.receive(from, collective_tag(CollectiveKind::GatherBytes, {}), payload), what);
      result[static_cast<std::size_t>(from)].assign(static_cast<const char*>(payload.data_ptr()), static_cast<std::size_t>(length));
    }
    return result;
  }

  void abort(const std::string& reason) override { (void)link_.control().abort(reason); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return *bytes_; }

 private:
  using Payload = std::pair<at::Tensor, C10dLink::Work>;
  struct Incoming {
    at::Tensor header;
    C10dLink::Work header_work;
    std::vector<Payload> payloads;
  };

  template <typename What>
  void wait(const C10dLink::Work& work, const What& what) {
    if (!is_aside_) link_.control().set_doing("waiting for " + what());
    link_.wait(work, what);
  }

  Tensors take_local(const MessageKey& key) {
    auto node = local_.extract(key);
    PD_CHECK(!node.empty(), "{} is taken before it was made on the same rank", describe(key));
    return std::move(node.mapped());
  }

  std::vector<C10dLink::Work> start_sends(int to, const MessageKey& key, const Tensors& tensors, EdgeSizes& sizes) {
    std::vector<std::int64_t> bytes;
    for (const auto& tensor : tensors) bytes.push_back(tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0);
    sizes.see(bytes);
    sizes.learn(bytes);
    // A header starts with its length; what does not fit follows on its own.
    ByteWriter writer;
    writer.put(std::string_view(header_of(key, sizes.capacity, tensors)));
    const std::string header = writer.take();
    const std::string_view all(header), start = all.substr(0, kHeaderBytes), rest = all.substr(start.size());
    std::vector<C10dLink::Work> works;
    works.push_back(link_.send(to, part_tag(key, kHeaderPart), bytes_tensor_of(start, kHeaderBytes)));
    if (!rest.empty()) works.push_back(link_.send(to, part_tag(key, kLongHeaderPart), bytes_tensor_of(rest, static_cast<std::int64_t>(rest.size()))));
    for (std::size_t i = 0; i < std::max(sizes.capacity.size(), tensors.size()); ++i) {
      const std::int64_t size = i < tensors.size() ? bytes[i] : 0;
      const bool is_posted = fits(sizes.capacity, i, size);
      *bytes_ += size;
      if (i < sizes.capacity.size()) works.push_back(link_.send(to, posted_tag(key, i), is_posted && size > 0 ? tensors[i] : bytes_tensor(1)));
      if (!is_posted && size > 0) works.push_back(link_.send(to, late_tag(key, i), tensors[i]));
    }
    return works;
  }

  void post_payloads(Incoming& message, int from, const MessageKey& key, const std::vector<std::int64_t>& capacity) {
    for (std::size_t i = 0; i < capacity.size(); ++i) {
      const at::Tensor buffer = bytes_tensor(capacity[i]);
      message.payloads.emplace_back(buffer, link_.receive(from, posted_tag(key, i), buffer));
    }
  }

  /// The first header of an edge has told the sizes: the receives that were posted before it can be completed.
  void learn_sizes(int from, const MessageKey& key, const std::vector<std::int64_t>& capacity) {
    EdgeSizes& sizes = received_[edge_of(from, key)];
    if (std::exchange(sizes.known, true)) return;
    sizes.capacity = capacity;
    for (auto& [place, message] : incoming_)
      if (edge_of(place.first, place.second) == edge_of(from, key)) post_payloads(message, from, place.second, capacity);
  }

  Header read_header(const Incoming& message, int from, const MessageKey& key) {
    const std::string_view start(static_cast<const char*>(message.header.data_ptr()), static_cast<std::size_t>(kHeaderBytes));
    const auto length = ByteReader(start).get<std::size_t>();
    std::string framed(start);
    if (const auto all = length + sizeof length; all > framed.size()) {
      const at::Tensor rest = bytes_tensor(static_cast<std::int64_t>(all - framed.size()));
      wait(link_.receive(from, part_tag(key, kLongHeaderPart), rest), [&] { return fmt::format("{} (rank {})", describe(key), from); });
      framed.append(static_cast<const char*>(rest.data_ptr()), all - framed.size());
    }
    Header header = parse_header(std::string_view(framed).substr(sizeof length, length));
    if (header.key != key)
      throw RankError(link_.control().abort(fmt::format("rank {} expected {} from rank {} and got {}: they do not run the same schedule", rank(),
                                                        describe(key), from, describe(header.key))));
    return header;
  }

  static at::Tensor as_tensor(const TensorSchema& schema, const at::Tensor& buffer) {
    if (!schema.defined) return {};
    if (schema.bytes == 0) return at::empty(schema.sizes, schema.type);
    return buffer.narrow(0, 0, schema.bytes).view(schema.type).view(schema.sizes);
  }

  void wait_for_room(C10dOutbox& outbox, int to, const MessageKey& key, int bounded) {
    const auto start = std::chrono::steady_clock::now();
    if (outbox.wait_for_room(static_cast<std::size_t>(bounded), link_.control().deadline())) return;
    const double waited = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    link_.fail(fmt::format("room for {} at rank {}", describe(key), to), waited, "a send failed");
  }

  void barrier_for(const std::string& what) {
    const int tag = collective_tag(CollectiveKind::Barrier, {});
    const at::Tensor out = at::zeros({1}, at::kByte);
    const auto peers = [&](const auto& make) {
      std::vector<std::pair<int, C10dLink::Work>> works;
      if (rank() == 0)
        for (int peer = 1; peer < num_ranks(); ++peer) works.emplace_back(peer, make(peer));
      else works.emplace_back(0, make(0));
      return works;
    };
    std::vector<at::Tensor> in;
    const auto receives = peers([&](int peer) {
      in.push_back(at::zeros({1}, at::kByte));
      return link_.receive(peer, tag, in.back());
    });
    const auto wait_all = [&](const auto& works) {
      for (const auto& [peer, work] : works) wait(work, [&, p = peer] { return fmt::format("{} (rank {})", what, p); });
    };
    if (rank() == 0) wait_all(receives);
    const auto sends = peers([&](int peer) { return link_.send(peer, tag, out); });
    if (rank() != 0) wait_all(receives);
    wait_all(sends);
  }

  std::shared_ptr<C10dLink> link_ptr_;  // shared with those for other threads
  C10dLink& link_ = *link_ptr_;
  bool is_aside_ = false;                                    // of a thread beside the rank's own, which what the rank is doing does not follow
  std::map<std::pair<int, MessageKey>, Incoming> incoming_;  // posted, not taken
  std::map<MessageKey, Tensors> local_;                      // from this rank to itself
  std::map<Edge, EdgeSizes> sent_, received_;
  std::map<Edge, std::unique_ptr<C10dOutbox>> outboxes_;  // after link_: their threads use it
  std::unique_ptr<C10dSummer> summer_;                    // the same
  std::shared_ptr<std::atomic<std::int64_t>> bytes_ = std::make_shared<std::atomic<std::int64_t>>(0);
};

}  // namespace

std::unique_ptr<Transport> make_c10d_transport(std::shared_ptr<ControlGroup> group, const std::string& backend) {
  if (backend != "gloo") throw UsageError(fmt::format("there is no transport '{}'", backend), "choose threads or gloo");
  return std::make_unique<C10dTransport>(std::move(group));
}

}  // namespace pipedream

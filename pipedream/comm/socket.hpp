#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace pipedream {

/// A TCP socket that is closed with its object. Moves frames: a length (4 bytes) and that many bytes.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  void close();
  /// Ends both directions: whoever waits in this socket wakes up.
  void shut_down() const;

  /// False when the peer is gone or does not take or give bytes for as long as the timeout.
  [[nodiscard]] bool send_frame(std::string_view bytes) const;
  [[nodiscard]] bool receive_frame(std::string& bytes, std::size_t largest) const;
  void set_timeout(std::chrono::milliseconds timeout) const;

  /// Numeric address of this end.
  [[nodiscard]] std::string local_address() const;
  /// Port of this end.
  [[nodiscard]] int local_port() const;

 private:
  int descriptor_ = -1;
};

/// The first IPv4 address (or IPv6 where there is none) of a network interface. @throws UsageError naming the interfaces that exist
[[nodiscard]] std::string address_of_interface(const std::string& interface);

/// Listens at one address only. `port` 0 takes a free one. @throws RankError naming address and port (in use, not an own address, ...)
[[nodiscard]] Socket listen_at(const std::string& address, int port);

/// One try to connect; closed if nobody answers. `from` is the own address to use, empty for whatever the route says.
/// @throws RankError if the name cannot be resolved
[[nodiscard]] Socket try_connect(const std::string& address, int port, const std::string& from, std::chrono::milliseconds timeout);

}  // namespace pipedream

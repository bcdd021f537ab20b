#include "pipedream/comm/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw RankError(fmt::format("cannot find the host '{}': {}", address, ::gai_strerror(error)),
                    "set MASTER_ADDR to a name or address of rank 0's host");
  return {found, &::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return host;
}

}  // namespace

Socket::~Socket() { close(); }

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Socket::shut_down() const {
  if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
}

bool Socket::send_frame(std::string_view bytes) const {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::string frame(reinterpret_cast<const char*>(&length), sizeof length);
  frame.append(bytes);
  std::size_t done = 0;
  while (done < frame.size()) {
    const ssize_t n = ::send(descriptor_, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

bool Socket::receive_frame(std::string& bytes, std::size_t largest) const {
  const auto read_all = [this](char* target, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const ssize_t n = ::recv(descriptor_, target + done, size - done, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  };
  std::uint32_t length = 0;
  if (!read_all(reinterpret_cast<char*>(&length), sizeof length) || length > largest) return false;
  bytes.resize(length);
  return read_all(bytes.data(), length);
}

void Socket::set_timeout(std::chrono::milliseconds timeout) const {
  timeval value{};
  value.tv_sec = timeout.count() / 1000;
  value.tv_usec = static_cast<suseconds_t>(timeout.count() % 1000) * 1000;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof value);
  ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value);
}

std::string Socket::local_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return numeric(reinterpret_cast<const sockaddr*>(&address), size);
}

int Socket::local_port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string address_of_interface(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw RankError(fmt::format("cannot list the network interfaces: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      names.insert(one->ifa_name);
      if (interface != one->ifa_name || one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      return numeric(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    }
  throw UsageError(fmt::format("there is no network interface '{}' with an address", interface),
                   fmt::format("choose one of {}", fmt::join(names, ", ")));
}

Socket listen_at(const std::string& address, int port) {
  const Addresses found = resolve(address, port);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket.is_open() || ::bind(socket.descriptor(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.descriptor(), 512) != 0) {
    const int error = errno;
    const std::string hint = error == EADDRINUSE      ? "another run uses it: set MASTER_PORT to a free port for this one"
                             : error == EADDRNOTAVAIL ? "MASTER_ADDR must be an address of the host that rank 0 runs on"
                                                      : "";
    throw RankError(fmt::format("cannot listen at {} port {}: {}", address, port, std::strerror(error)), hint);
  }
  return socket;
}

Socket try_connect(const std::string& address, int port, const std::string& from, std::chrono::milliseconds timeout) {
  const Addresses found = resolve(address, port);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.is_open()) continue;
    if (!from.empty()) {
      const Addresses own = resolve(from, 0);
      if (own->ai_family != one->ai_family || ::bind(socket.descriptor(), own->ai_addr, own->ai_addrlen) != 0) continue;
    }
    if (::connect(socket.descriptor(), one->ai_addr, one->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) continue;
      pollfd waiting{socket.descriptor(), POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof error;
      if (::poll(&waiting, 1, static_cast<int>(timeout.count())) != 1) continue;
      if (::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) continue;
    }
    ::fcntl(socket.descriptor(), F_SETFL, ::fcntl(socket.descriptor(), F_GETFL) & ~O_NONBLOCK);
    const int on = 1;
    ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return socket;
  }
  return {};
}

}  // namespace pipedream

// An HTTP server of OTLP/HTTP on a free port of the loopback interface, which answers, refuses, closes or stays silent.
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gantry::testing {

class TinyCollector {
 public:
  // The reply to request i, from 0: a status and a body. Status 0 closes the connection without a reply; -1 never
  // replies.
  using Answer = std::function<std::pair<int, std::string>(int request)>;

  // Has a port that refuses connections.
  struct ListensNot {};
  static constexpr ListensNot kListensNot{};
  explicit TinyCollector(ListensNot) : listener_(bound_socket()) {}

  explicit TinyCollector(Answer answer = [](int) { return std::pair<int, std::string>(200, "{}"); })
      : answer_(std::move(answer)), listener_(bound_socket()) {
    ::listen(listener_, 16);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~TinyCollector() {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
      changed_.notify_all();
    }
    ::shutdown(listener_, SHUT_RDWR);
    if (acceptor_.joinable()) acceptor_.join();
    for (auto& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }
  TinyCollector(const TinyCollector&) = delete;
  TinyCollector& operator=(const TinyCollector&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }

  struct Request {
    std::string head;  // the request line and the header fields
    nlohmann::json body;
  };
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // Waits until there are this many requests, for at most a minute.
  void wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), [&] { return requests_.size() >= count; }));
  }
  // All spans, each with the attributes of its resource as "resource".
  std::vector<nlohmann::json> spans() const {
    std::vector<nlohmann::json> all;
    for (const auto& request : requests())
      for (const auto& resource : request.body.at("resourceSpans"))
        for (const auto& scope : resource.at("scopeSpans"))
          for (nlohmann::json span : scope.at("spans")) {
            span["resource"] = values_of(resource.at("resource").at("attributes"));
            span["values"] = values_of(span.at("attributes"));
            all.push_back(std::move(span));
          }
    return all;
  }

 private:
  // {key: value} of a list of attributes.
  static nlohmann::json values_of(const nlohmann::json& attributes) {
    nlohmann::json values = nlohmann::json::object();
    for (const auto& each : attributes) {
      const auto& value = each.at("value");
      if (value.contains("intValue"))
        values[each.at("key")] = std::stoll(value.at("intValue").get<std::string>());
      else
        values[each.at("key")] = value.begin().value();
    }
    return values;
  }

  int bound_socket() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    return socket;
  }

  void accept_all() {
    for (;;) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      const std::lock_guard lock(mutex_);
      if (socket < 0 || is_closing_) {
        if (socket >= 0) ::close(socket);
        return;
      }
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    std::string bytes;
    while (read_request(socket, bytes)) {
      int number = 0;
      {
        const std::lock_guard lock(mutex_);
        number = static_cast<int>(requests_.size()) - 1;
      }
      const auto [status, body] = answer_(number);
      if (status < 0) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return is_closing_; });
      }
      if (status <= 0) break;
      const std::string reply = "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" +
                                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
      if (::send(socket, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) break;
    }
    ::shutdown(socket, SHUT_RDWR);
  }

  // Removes one request from `bytes` after reading what is missing. False at the end of the connection.
  bool read_request(int socket, std::string& bytes) {
    const auto complete = [&] {
      const auto end = bytes.find("\r\n\r\n");
      const auto length = bytes.find("Content-Length: ");
      return end != std::string::npos && length < end &&
             bytes.size() >= end + 4 + std::stoul(bytes.substr(length + 16));
    };
    while (!complete()) {
      char part[65536];
      const auto count = ::recv(socket, part, sizeof part, 0);
      if (count <= 0) return false;
      bytes.append(part, static_cast<std::size_t>(count));
    }
    const auto end = bytes.find("\r\n\r\n") + 4;
    const auto size = std::stoul(bytes.substr(bytes.find("Content-Length: ") + 16));
    const std::lock_guard lock(mutex_);
    requests_.push_back({bytes.substr(0, end), nlohmann::json::parse(bytes.substr(end, size))});
    bytes.erase(0, end + size);
    changed_.notify_all();
    return true;
  }

  Answer answer_;
  int port_ = 0, listener_;   // in this order: bound_socket() sets the port
  mutable std::mutex mutex_;  // guards the members after it
  std::condition_variable changed_;
  bool is_closing_ = false;
  std::vector<Request> requests_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace gantry::testing

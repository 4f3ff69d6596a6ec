// A small HTTP/1.1 server for a run's live status: whoever has pages gives it a function from path to reply.
//
// It answers GET and HEAD, one request per connection. Requests of more than 8 KiB (431), bodies (413), other methods
// (405) and invalid paths (400) are rejected. A connection is closed if its request is not complete after 10 s, or if
// its reply is not sent after another 10 s. If 32 connections are open, further ones are closed at once, so 32 idle
// clients keep all others out. The server has a thread of its own, which is blocked between requests, so that a slow
// page delays no heartbeats.
//
// Who may ask: a request's Host must be an address, localhost or this host's name (403), so that no page of another
// site reads the run by a name that it points here. With a token each request must carry it (401): "Authorization:
// Bearer TOKEN", or by HTTP's Basic scheme as the password of the user "gantry", which browsers ask for.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace gantry {

struct StatusReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// What a path that nobody serves gets.
StatusReply not_found();

class StatusServer {
 public:
  // Returns the reply for a path without its query ("/metrics"). Called on the server's thread, one call at a time. If
  // it throws, the reply is 500 with the text of the exception.
  using Handler = std::function<StatusReply(const std::string& path)>;

  // Listens on `port` of `address` (0: any free port) and serves until it is destroyed; an empty token lets everybody
  // ask. ResourceError for a port that is in use or may not be had.
  StatusServer(int port, const std::string& address, Handler handler, const std::string& token = "");
  ~StatusServer();

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8080/"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry

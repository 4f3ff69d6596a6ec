// A small HTTP/1.1 server for a run's live status. Its owner provides a function that returns the reply for a
// path.
//
// It answers GET and HEAD, one request per connection. Requests of more than 8 KiB (431), bodies (413), other
// methods (405) and invalid paths (400) are rejected. A connection is closed if its request is not complete
// after 10 s, or if its reply is not sent after another 10 s. If 32 connections are open, further ones are
// closed at once, so 32 idle clients keep all others out. The server has a thread of its own, which is
// blocked between requests, so that a slow page delays no heartbeats.
//
// Access: a request's Host header must be an address, localhost or this host's name (403), which prevents DNS
// rebinding: a page of another site cannot read the run through a name that resolves to this host. If the
// server has a token, each request must carry it (401): as "Authorization: Bearer TOKEN", or in HTTP's Basic
// scheme as the password of the user "gantry", for which browsers prompt.
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

// Returns the reply for an unknown path.
StatusReply not_found();

class StatusServer {
 public:
  // Returns the reply for a path without its query ("/metrics"). Called on the server's thread, one call at a time. If
  // it throws, the reply is 500 with the text of the exception.
  using Handler = std::function<StatusReply(const std::string& path)>;

  // Listens on `port` of `address` (0: any free port) and serves until it is destroyed. With an empty token,
  // requests need none. Throws ResourceError if the port is in use or not permitted.
  StatusServer(int port, const std::string& address, Handler handler, const std::string& token = "");
  ~StatusServer();

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8080/"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry

// Execs over HTTP against bare spawns of the same program, interleaved in one run. Prints one JSON object.
//
//   exec_http latency PORT KEY BODY N IDLE PROGRAM [ARG…]
//       one client; IDLE further connections stay open
//   exec_http alternation PORT KEY BODY N PROGRAM [ARG…] -- OTHER [ARG…]
//       one client; N rounds as for latency, and N with a run of OTHER before each exec and each spawn
//   exec_http throughput PORT KEY BODY CLIENTS SECONDS PROGRAM [ARG…]
//       rounds of bare, HTTP, bare, HTTP, …; "{client}" in BODY is replaced by the client's number
//   exec_http get PORT KEY PATH N
//       latency of a GET, alone
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

int usage() {
  std::fprintf(stderr, "see the head of exec_http.cc\n");
  return 2;
}

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A program's stdout and stderr.
struct Pipes {
  std::array<int, 2> out{};
  std::array<int, 2> err{};

  void open() {
    if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) die("pipe");
  }
  void close_writers() const {
    close(out[1]);
    close(err[1]);
  }
  void drain() const {
    std::array<char, 4096> buffer;  // NOLINT
    for (const int fd : {out[0], err[0]}) {
      while (read(fd, buffer.data(), buffer.size()) > 0) {
      }
      close(fd);
    }
  }
};

pid_t spawn(char* const* argv, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  pid_t pid = 0;
  if (posix_spawnp(&pid, argv[0], &actions, nullptr, argv, environ) != 0) die("posix_spawn");
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// A failure of the program ends the bench.
void wait_for(pid_t pid, const char* name) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) die("waitpid");
  if (status == 0) return;
  std::fprintf(stderr, "%s failed\n", name);
  std::exit(1);
}

// posix_spawn, two pipes read to their end, wait.
void bare_spawn(char* const* argv) {
  Pipes pipes;
  pipes.open();
  const pid_t pid = spawn(argv, pipes.out[1], pipes.err[1]);
  pipes.close_writers();
  pipes.drain();
  wait_for(pid, argv[0]);
}

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("connect");
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends and reads one answer with a Content-Length; anything but 200 ends the bench.
  void call(const std::string& request) {
    if (send(fd_, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
      die("send");
    answer_.clear();
    size_t need = 0;
    while (need == 0 || answer_.size() < need) {
      std::array<char, 65536> buffer;  // NOLINT
      const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
      if (n <= 0) die("recv");
      answer_.append(buffer.data(), static_cast<size_t>(n));
      if (need != 0) continue;
      const size_t head = answer_.find("\r\n\r\n");
      const size_t length = answer_.find("Content-Length: ");
      if (head != std::string::npos && length < head)
        need = head + 4 + std::stoul(answer_.substr(length + 16));
    }
    if (!answer_.starts_with("HTTP/1.1 200") || answer_.find("\"exit_code\":0,") == std::string::npos) {
      if (request.starts_with("POST")) {
        std::fprintf(stderr, "unexpected answer: %s\n", answer_.c_str());
        std::exit(1);
      }
    }
  }

 private:
  int fd_;
  std::string answer_;
};

std::string post(const char* key, const std::string& body) {
  return "POST /exec HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + std::string(key) +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

// The least that a front and a backend host in separate processes cost: one process accepts a connection,
// makes the pipes and answers; another gets them in a message, spawns and waits. Neither parses, checks,
// journals or logs.
class Relay {
 public:
  explicit Relay(char* const* program) : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 1) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      die("relay");
    port_ = ntohs(address.sin_port);
    std::array<int, 2> pair{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) die("socketpair");
    front_ = run([&] { front(pair[0]); });
    host_ = run([&] { host(pair[1], program); });
    close(pair[0]);
    close(pair[1]);
  }
  ~Relay() {
    for (const pid_t pid : {front_, host_}) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return port_; }

 private:
  template <typename Role>
  static pid_t run(Role&& role) {
    const pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    role();
    _exit(0);
  }

  static void wait_readable(int poll, int fd) {
    epoll_event event{};
    do {
      if (epoll_wait(poll, &event, 1, -1) != 1) _exit(1);
    } while (event.data.fd != fd);
  }

  void front(int host) const {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    for (const int fd : {client, host}) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = fd;
      epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    }
    const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"exit_code\":0,";
    std::array<char, 4096> buffer;  // NOLINT
    for (;;) {
      wait_readable(poll, client);
      if (recv(client, buffer.data(), buffer.size(), 0) <= 0) return;
      Pipes pipes;
      pipes.open();
      pass(host, pipes);
      pipes.close_writers();
      wait_readable(poll, host);
      if (recv(host, buffer.data(), buffer.size(), 0) <= 0) return;
      pipes.drain();
      if (send(client, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  static void host(int front, char* const* program) {
    for (;;) {
      const std::array<int, 2> writers = receive(front);
      const pid_t pid = spawn(program, writers[0], writers[1]);
      for (const int fd : writers) close(fd);
      wait_for(pid, program[0]);
      if (send(front, "x", 1, MSG_NOSIGNAL) != 1) return;
    }
  }

  // A message of one byte and the descriptors of two writers.
  struct Message {
    char byte = 'x';
    iovec bytes{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
    msghdr head{};
    Message() {
      head.msg_iov = &bytes;
      head.msg_iovlen = 1;
      head.msg_control = control.data();
      head.msg_controllen = control.size();
    }
  };

  static void pass(int host, const Pipes& pipes) {
    Message message;
    cmsghdr* const header = CMSG_FIRSTHDR(&message.head);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    const std::array<int, 2> writers{pipes.out[1], pipes.err[1]};
    std::memcpy(CMSG_DATA(header), writers.data(), sizeof writers);
    if (sendmsg(host, &message.head, MSG_NOSIGNAL) != 1) _exit(1);
  }

  static std::array<int, 2> receive(int front) {
    Message message;
    if (recvmsg(front, &message.head, MSG_CMSG_CLOEXEC) != 1) _exit(0);
    std::array<int, 2> writers{};
    std::memcpy(writers.data(), CMSG_DATA(CMSG_FIRSTHDR(&message.head)), sizeof writers);
    return writers;
  }

  int listener_;
  int port_ = 0;
  pid_t front_ = -1;
  pid_t host_ = -1;
};

struct Percentiles {
  double p50, p90, p99;
};

Percentiles percentiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[samples.size() * 90 / 100],
          samples[samples.size() * 99 / 100]};
}

struct Samples {
  std::vector<double> bare, http, relay;
};

// Measures `rounds` of a bare spawn, a call and, if there is a relay, a spawn through it, after `unmeasured`
// more. `before` runs before each of them.
template <typename Before>
void measure(Samples& into, Client& client, Client* relay, const std::string& request, char* const* program,
             int unmeasured, int rounds, Before&& before) {
  const auto time = [&](auto&& work) {
    before();
    const auto start = Clock::now();
    work();
    return since_us(start);
  };
  for (int i = -unmeasured; i < rounds; ++i) {
    const double bare = time([&] { bare_spawn(program); });
    const double http = time([&] { client.call(request); });
    const double relayed = relay != nullptr ? time([&] { relay->call(request); }) : 0;
    if (i < 0) continue;
    into.bare.push_back(bare);
    into.http.push_back(http);
    if (relay != nullptr) into.relay.push_back(relayed);
  }
}

void print_latency(const Samples& samples) {
  const auto b = percentiles(samples.bare);
  const auto h = percentiles(samples.http);
  std::printf("{\"bare_p50_us\":%.1f,\"bare_p90_us\":%.1f,\"bare_p99_us\":%.1f,", b.p50, b.p90, b.p99);
  std::printf("\"http_p50_us\":%.1f,\"http_p90_us\":%.1f,\"http_p99_us\":%.1f,", h.p50, h.p90, h.p99);
  if (!samples.relay.empty()) {
    const auto r = percentiles(samples.relay);
    std::printf("\"relay_p50_us\":%.1f,\"relay_p50_ratio\":%.3f,", r.p50, r.p50 / b.p50);
  }
  std::printf("\"p50_ratio\":%.3f,\"p90_ratio\":%.3f,\"p99_ratio\":%.3f}\n", h.p50 / b.p50, h.p90 / b.p90,
              h.p99 / b.p99);
}

// Holds `count` connections in a separate child, so that they do not slow down the spawns measured here.
class Idle {
 public:
  Idle(int port, int count) {
    if (count == 0) return;
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0) die("pipe");
    holder_ = fork();
    if (holder_ == 0) {
      std::vector<std::unique_ptr<Client>> held;
      for (int i = 0; i < count; ++i) held.push_back(std::make_unique<Client>(port));
      if (write(ready[1], "x", 1) != 1) _exit(1);
      pause();
      _exit(0);
    }
    close(ready[1]);
    char byte = 0;
    if (read(ready[0], &byte, 1) != 1) die("idle connections");
    close(ready[0]);
  }
  ~Idle() {
    if (holder_ <= 0) return;
    kill(holder_, SIGKILL);
    waitpid(holder_, nullptr, 0);
  }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;

 private:
  pid_t holder_ = -1;
};

int latency(char** argv) {
  const int port = std::atoi(argv[0]);
  const std::string request = post(argv[1], argv[2]);
  const int n = std::atoi(argv[3]);
  const Idle idle(port, std::atoi(argv[4]));
  Client client(port);
  Samples samples;
  measure(samples, client, nullptr, request, argv + 5, n / 10, n, [] {});
  print_latency(samples);
  return 0;
}

int alternation(char** argv) {
  const std::string request = post(argv[1], argv[2]);
  const int n = std::atoi(argv[3]);
  char** const program = argv + 4;
  char** other = program;
  while (*other != nullptr && std::strcmp(*other, "--") != 0) ++other;
  if (n < 1 || *other == nullptr || other[1] == nullptr) return usage();
  *other++ = nullptr;
  Client client(std::atoi(argv[0]));
  const Relay relay(program);
  Client relayed(relay.port());
  Samples loop;
  Samples alternating;
  measure(loop, client, &relayed, request, program, 20, 0, [] {});  // creates the sandbox
  constexpr int kTurn = 30;  // loop and alternation run under the same conditions
  for (int done = 0; done < n; done += kTurn) {
    const int rounds = std::min(kTurn, n - done);
    measure(loop, client, &relayed, request, program, 10, rounds, [] {});
    measure(alternating, client, &relayed, request, program, 1, rounds, [other] { bare_spawn(other); });
  }
  std::printf("{\"loop\":");
  print_latency(loop);
  std::printf(",\"alternation\":");
  print_latency(alternating);
  std::printf("}\n");
  return 0;
}

template <typename Work>
double rate(int threads, double seconds, Work&& work) {
  std::atomic<long> done{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] { work(i, stop, done); });
  }
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double count = static_cast<double>(done);
  const double took = since_us(start) / 1e6;
  stop = true;
  for (auto& thread : all) thread.join();
  return count / took;
}

// A BODY with "{client}" gives each client its own sandbox.
std::string with_client(std::string body, int client) {
  constexpr std::string_view kMark = "{client}";
  if (const auto at = body.find(kMark); at != std::string::npos)
    body.replace(at, kMark.size(), std::to_string(client));
  return body;
}

int throughput(char** argv) {
  const int port = std::atoi(argv[0]);
  const int clients = std::atoi(argv[3]);
  std::vector<std::string> requests;
  for (int i = 0; i < clients; ++i) requests.push_back(post(argv[1], with_client(argv[2], i)));
  const double seconds = std::atof(argv[4]);
  char** program = argv + 5;
  std::vector<double> bare;
  std::vector<double> http;
  std::vector<double> ratios;
  for (int round = 0; round < 5; ++round) {
    bare.push_back(rate(clients, seconds, [&](int, auto& stop, auto& done) {
      while (!stop) bare_spawn(program), ++done;
    }));
    http.push_back(rate(clients, seconds, [&](int i, auto& stop, auto& done) {
      Client client(port);
      while (!stop) client.call(requests[i]), ++done;
    }));
    ratios.push_back(http.back() / bare.back());
  }
  std::printf("{\"clients\":%d,\"bare_per_sec\":%.0f,\"http_per_sec\":%.0f,\"ratio\":%.3f}\n", clients,
              percentiles(bare).p50, percentiles(http).p50, percentiles(ratios).p50);
  return 0;
}

int get(char** argv) {
  Client client(std::atoi(argv[0]));
  const std::string request = "GET " + std::string(argv[2]) +
                              " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + argv[1] + "\r\n\r\n";
  std::vector<double> samples;
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    const auto start = Clock::now();
    client.call(request);
    samples.push_back(since_us(start));
  }
  const auto p = percentiles(samples);
  std::printf("{\"p50_us\":%.1f,\"p99_us\":%.1f}\n", p.p50, p.p99);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (argc > 7 && std::strcmp(argv[1], "latency") == 0) return latency(argv + 2);
  if (argc > 7 && std::strcmp(argv[1], "throughput") == 0) return throughput(argv + 2);
  if (argc > 8 && std::strcmp(argv[1], "alternation") == 0) return alternation(argv + 2);
  if (argc == 6 && std::strcmp(argv[1], "get") == 0) return get(argv + 2);
  return usage();
}

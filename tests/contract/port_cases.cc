#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/contract/contract.h"
#include "tests/support/program.h"
#include "tests/support/websocket.h"
#include "tests_dirs.h"

// Connections to ports of a sandbox: their bytes and ends, who may have them, and what is refused.
namespace isogate::test {

std::string start_port_server(const Caller& me, const std::string& kind, int port) {
  static const std::string program = read_whole(ISOGATE_BUILD_DIR "/bin/contract_port_server");
  const Answer put = me.call("PUT", me.file_url("port_server?mode=0755"), {}, program);
  const Answer started = me.post(
      "/exec", {{"command", "./port_server " + kind + " " + std::to_string(port)}, {"background", true}});
  if (put.status / 100 != 2 || started.status != 202)
    throw std::runtime_error("the port server is not started: " + put.text + started.text);
  const std::string output = "/execs/" + started.body.at("exec_id").get<std::string>() + "/output";
  if (!eventually(60, [&] { return me.get(output).text.find("ready") != std::string::npos; }))
    throw std::runtime_error("the port server does not listen: " + me.get(output).text);
  return output;
}

namespace {

constexpr int kPort = 8080;

std::string port_url(const std::string& agent, const std::string& port, const std::string& query = {}) {
  return "/sandboxes/" + agent + "/ports/" + port + query;
}

class Connected {
 public:
  explicit Connected(const Caller& me, int port = kPort, const std::string& query = {})
      : socket(me.url(), port_url(me.agent(), std::to_string(port), query), me.headers(), 300) {}

  // That many bytes, or fewer if the end came first.
  std::string take(size_t size) {
    std::string bytes;
    while (bytes.size() < size) {
      const auto message = socket.next();
      if (!message) break;
      if (message->text) {
        ended = ended || message->bytes == R"({"event":"end"})";
        EXPECT_TRUE(ended) << message->bytes;
        break;
      }
      bytes += message->bytes;
    }
    return bytes;
  }
  std::string rest() { return take(SIZE_MAX); }

  WebSocket socket;
  bool ended = false;  // the port has ended its direction
};

Answer dial(const Caller& me, const std::string& port, const std::string& agent = {}) {
  const WebSocket socket(me.url(), port_url(agent.empty() ? me.agent() : agent, port), me.headers(), 120);
  return answer_of(socket.answer());
}

// If the backend has no ports, expects the refusal, which names what is missing. True: the case is done.
bool is_refused(World& w) {
  if (w.can("ports")) return false;
  w.me.run("true");
  const Answer answer = dial(w.me, std::to_string(kPort));
  EXPECT_TRUE(refused(answer, 501, "unsupported"));
  EXPECT_NE(answer.text.find("ports"), std::string::npos) << answer.text;
  return true;
}

void bytes_to_and_from_a_port_are_exact(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "echo");
  Connected port(w.me, kPort, "?half_close=true");
  ASSERT_TRUE(port.socket.open()) << port.socket.answer().body;
  const std::string bytes = noise(10 << 20, 21);
  std::string back;  // a part at a time: the client has one thread
  for (size_t at = 0; at < bytes.size(); at += 200000) {
    const std::string part = bytes.substr(at, 200000);
    port.socket.send_binary(part);
    back += port.take(part.size());
  }
  EXPECT_TRUE(back == bytes) << back.size();
  port.socket.send_text(R"({"type":"end"})");
  EXPECT_EQ(port.rest(), "");
  EXPECT_TRUE(port.ended);
  EXPECT_FALSE(port.socket.next());
  EXPECT_EQ(port.socket.close_code(), 1000);
}

void a_port_ends_one_direction_after_the_other(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "count");
  Connected port(w.me, kPort, "?half_close=true");
  ASSERT_TRUE(port.socket.open()) << port.socket.answer().body;
  port.socket.send_binary(std::string(100000, 'x'));
  port.socket.send_text(R"({"type":"end"})");
  EXPECT_EQ(port.rest(), "100000\n");
  EXPECT_TRUE(port.ended);
  EXPECT_FALSE(port.socket.next());
  EXPECT_EQ(port.socket.close_code(), 1000);
  Connected strict(w.me, kPort);
  strict.socket.send_text(R"({"type":"end"})");
  EXPECT_FALSE(strict.socket.next());
  EXPECT_EQ(strict.socket.close_code(), 1007) << "without half_close there are no text messages";
}

void what_a_client_sent_before_it_left_arrives(World& w) {
  if (is_refused(w)) return;
  const std::string output = start_port_server(w.me, "count");
  Connected port(w.me);
  ASSERT_TRUE(port.socket.open());
  port.socket.send_binary(std::string(100000, 'x'));
  port.socket.close();
  EXPECT_TRUE(eventually(60, [&] { return w.me.get(output).text.find("100000\\n") != std::string::npos; }))
      << w.me.get(output).text;
}

// More than the program's own socket holds, while the port waits for who reads nothing.
void what_a_client_sent_before_it_broke_off_arrives(World& w) {
  if (is_refused(w)) return;
  const std::string output = start_port_server(w.me, "pour");
  Connected port(w.me);
  ASSERT_TRUE(port.socket.open());
  for (int i = 0; i < 2; ++i) port.socket.send_binary(std::string(100000, 'x'));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  port.socket.drop();
  EXPECT_TRUE(eventually(60, [&] { return w.me.get(output).text.find("200000\\n") != std::string::npos; }))
      << w.me.get(output).text;
}

void a_message_to_a_port_is_bounded(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "hold");
  Connected port(w.me);
  ASSERT_TRUE(port.socket.open());
  port.socket.send_binary(std::string((256 << 10) + 1, 'x'));
  EXPECT_FALSE(port.socket.next());
  EXPECT_EQ(port.socket.close_code(), 1009);
}

void a_slow_reader_holds_up_the_port(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "flood");
  const pid_t front = front_of(w.gateway);
  const long before = resident_kib(front);
  Connected port(w.me);
  ASSERT_TRUE(port.socket.open());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(resident_kib(front) - before, kib_bound(4096)) << "KiB more in the front";
  EXPECT_EQ(port.rest().size(), size_t{10} << 20);
  EXPECT_EQ(port.socket.close_code(), 1000) << "the port's end ends the WebSocket";
}

void who_reads_nothing_of_a_port_is_disconnected(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another("ports: {max_per_sandbox: 1}\nlimits: {write_timeout_sec: 2}\n");
  const Caller me(*own, "stalled");
  start_port_server(me, "flood");
  Connected port(me);
  ASSERT_TRUE(port.socket.open());
  EXPECT_TRUE(eventually(60, [&] { return dial(me, std::to_string(kPort)).status == 101; }))
      << "it keeps its slot";
  EXPECT_THROW(port.rest(), std::runtime_error) << "the connection ended well";
}

void where_nobody_listens_the_port_is_closed(World& w) {
  if (is_refused(w)) return;
  w.me.run("true");
  EXPECT_TRUE(refused(dial(w.me, "8081"), 502, "port_closed"));
  start_port_server(w.me, "full");
  std::vector<std::unique_ptr<Connected>> waiting;  // what its queue holds
  Answer last;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::make_unique<Connected>(w.me));
    last = answer_of(waiting.back()->socket.answer());
    if (last.status != 101) break;
  }
  EXPECT_TRUE(refused(last, 502, "port_closed")) << "a listener that accepts nobody delays nobody";
  EXPECT_TRUE(succeeded(w.me.exec("true"))) << "and it is no failure of the backend";
}

void a_connection_that_breaks_off_does_not_end_well(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "reset");
  Connected port(w.me, kPort, "?half_close=true");
  ASSERT_TRUE(port.socket.open());
  port.socket.send_binary("x");
  EXPECT_EQ(port.rest(), "");
  EXPECT_FALSE(port.ended);
  EXPECT_EQ(port.socket.close_code(), 1011);
}

void a_server_on_ipv6_loopback_alone_is_found(World& w) {
  if (is_refused(w)) return;
  if (w.me.exec("test -e /proc/net/if_inet6 && grep -q ' lo$' /proc/net/if_inet6").body.at("exit_code") != 0)
    GTEST_SKIP() << "this sandbox has no IPv6";
  start_port_server(w.me, "six");
  Connected port(w.me);
  ASSERT_TRUE(port.socket.open()) << port.socket.answer().body;
  port.socket.send_binary("six");
  EXPECT_EQ(port.take(3), "six");
}

void a_port_that_is_none_is_refused(World& w) {
  w.me.run("true");
  for (const char* port : {"0", "65536", "70000", "-1", "http", "80x", "+80", "%30"})
    EXPECT_TRUE(refused(dial(w.me, port), 400, "invalid_request")) << port;
  EXPECT_TRUE(refused(w.me.get(port_url(w.me.agent(), "80")), 400, "invalid_request")) << "no WebSocket";
  EXPECT_TRUE(refused(dial(w.me, "80?half_close=1"), 400, "invalid_request"));
}

// None is created by it either.
void a_sandbox_that_is_not_there_has_no_ports(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const Caller nobody = w.me.as("nobody-" + w.me.agent());
  EXPECT_TRUE(refused(dial(nobody, "80"), 404, "sandbox_not_found"));
  EXPECT_TRUE(row_of(nobody).is_null());
}

void a_strangers_sandbox_has_no_ports(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another(two_keys());
  const Caller alpha(own->url(), key_of('A'), "same"), beta(own->url(), key_of('B'), "same");
  start_port_server(alpha, "echo");
  EXPECT_TRUE(refused(dial(beta, std::to_string(kPort)), 404, "sandbox_not_found"));
  beta.run("true");
  EXPECT_TRUE(refused(dial(beta, std::to_string(kPort)), 502, "port_closed")) << "it is its own sandbox";
  const Caller nobody(own->url(), "", "same");
  EXPECT_TRUE(refused(dial(nobody, std::to_string(kPort)), 401, "unauthenticated"));
  EXPECT_EQ(dial(alpha, std::to_string(kPort)).status, 101);
}

// Nor any other listener of this host.
void the_gateway_itself_is_not_reached(World& w) {
  w.me.run("true");
  const std::string url = w.gateway.url();
  const Answer answer = dial(w.me, url.substr(url.rfind(':') + 1));
  EXPECT_TRUE(w.can("ports") ? refused(answer, 502, "port_closed") : refused(answer, 501, "unsupported"));
}

void ending_the_sandbox_ends_its_connections(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "hold");
  Connected port(w.me);
  ASSERT_TRUE(port.socket.open());
  const double took =
      seconds_of([&] { EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent()))); });
  EXPECT_LT(took, 30.0);
  EXPECT_FALSE(port.socket.next());
  EXPECT_EQ(port.socket.close_code(), 1001);
}

// The port's direction has ended, and the client says nothing.
void what_ends_a_connection_ends_one_whose_port_has_ended(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another();
  const Caller one(*own, "one"), two(*own, "two");
  const auto ended = [](const Caller& me) {
    start_port_server(me, "last");
    auto port = std::make_unique<Connected>(me, kPort, "?half_close=true");
    EXPECT_TRUE(port->socket.open());
    port->socket.send_binary("x");
    EXPECT_TRUE(port->rest().ends_with("done"));
    EXPECT_TRUE(port->ended);
    return port;
  };
  const auto deleted = ended(one), stopped = ended(two);
  EXPECT_TRUE(succeeded(one.call("DELETE", "/sandboxes/one")));
  EXPECT_FALSE(deleted->socket.next());
  EXPECT_EQ(deleted->socket.close_code(), 1001);
  ::kill(own->pid(), SIGTERM);
  const double took = seconds_of([&] { EXPECT_FALSE(stopped->socket.next()); });
  EXPECT_LT(took, 15.0) << "it does not wait for the end of the drain";
  EXPECT_EQ(stopped->socket.close_code(), 1001);
  EXPECT_EQ(own->wait(45), 0);
}

void a_gateway_that_stops_ends_connections(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another();
  const Caller me(*own, "ends");
  start_port_server(me, "hold");
  Connected port(me);
  ASSERT_TRUE(port.socket.open());
  ::kill(own->pid(), SIGTERM);
  const double took = seconds_of([&] { EXPECT_FALSE(port.socket.next()); });
  EXPECT_LT(took, 15.0) << "it does not wait for the end of the drain";
  EXPECT_EQ(port.socket.close_code(), 1001);
  EXPECT_EQ(own->wait(45), 0);
}

// Its sandbox is kept, or comes back: it is not the one that is missing.
void a_dial_that_a_stop_cuts_is_to_be_repeated(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another();
  const Caller me(*own, "dials");
  start_port_server(me, "full");
  std::vector<std::unique_ptr<Connected>> waiting;  // what its queue holds
  do {
    waiting.push_back(std::make_unique<Connected>(me));
  } while (waiting.back()->socket.open() && waiting.size() < 4);
  std::future<Answer> dialled;
  int tries = 0;
  do {  // it gives up after five seconds, and on a busy machine one may take longer
    dialled = std::async(std::launch::async, [&] { return dial(me, std::to_string(kPort)); });
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } while (++tries < 10 && dialled.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  ::kill(own->pid(), SIGTERM);
  EXPECT_TRUE(refused(dialled.get(), 503, "backend_unavailable"));
  EXPECT_EQ(own->wait(45), 0);
}

void a_hundred_connections_at_once(World& w) {
  if (is_refused(w)) return;
  start_port_server(w.me, "echo");
  std::vector<std::unique_ptr<Connected>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(std::make_unique<Connected>(w.me));
    ASSERT_TRUE(all.back()->socket.open()) << i << all.back()->socket.answer().body;
  }
  for (size_t i = 0; i < all.size(); ++i) all[i]->socket.send_binary("number " + std::to_string(i));
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string text = "number " + std::to_string(i);
    EXPECT_EQ(all[i]->take(text.size()), text);
  }
  EXPECT_TRUE(succeeded(w.me.exec("true")));
}

void connections_of_a_sandbox_are_bounded(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another("ports: {max_per_sandbox: 2}\n");
  const Caller me(*own, "bounded");
  start_port_server(me, "hold");
  auto one = std::make_unique<Connected>(me);
  const Connected two(me);
  ASSERT_TRUE(one->socket.open() && two.socket.open());
  EXPECT_TRUE(refused(dial(me, std::to_string(kPort)), 429, "rate_limited"));
  one->socket.close();
  EXPECT_TRUE(eventually(30, [&] { return dial(me, std::to_string(kPort)).status == 101; }))
      << "a slot becomes free again";
}

void port_forward_carries_connections_of_this_machine(World& w) {
  ProgramOptions options;
  options.env = w.gateway.client_env();
  const std::vector<std::string> command = {"port-forward", w.me.agent(), ":" + std::to_string(kPort),
                                            ":8081"};
  w.me.run("true");
  if (w.can("ports")) {
    start_port_server(w.me, "count");
    start_port_server(w.me, "reset", 8081);
  }
  std::vector<std::string> argv = {isogate_binary()};
  argv.insert(argv.end(), command.begin(), command.end());
  Program forward(argv, options);
  ASSERT_TRUE(forward.wait_for_output("-> 8081\n", 60)) << forward.result.out << forward.result.err;
  std::vector<std::string> urls;
  for (size_t at = 0; (at = forward.result.out.find("Forwarding from ", at)) != std::string::npos;) {
    at += 16;
    urls.push_back("http://" + forward.result.out.substr(at, forward.result.out.find(' ', at) - at));
  }
  ASSERT_EQ(urls.size(), 2u) << forward.result.out;
  if (!w.can("ports")) {
    EXPECT_EQ(HttpConnection(urls[0]).read_until_closed(), "");
    EXPECT_TRUE(forward.wait(0.1) || forward.result.err.find("ports") != std::string::npos)
        << forward.result.err;
    return;
  }
  HttpConnection one(urls[0]), two(urls[0]);
  one.send(std::string(3 << 20, 'x'));
  two.send("12345");
  two.finish_sending();
  EXPECT_EQ(two.read_until_closed(), "5\n") << "its end was passed on, and the answer came back";
  one.finish_sending();
  EXPECT_EQ(one.read_until_closed(), std::to_string(3 << 20) + "\n");
  HttpConnection broken(urls[1]);
  broken.send("x");
  pollfd end{broken.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 30'000), 1);
  char byte = 0;
  EXPECT_EQ(::recv(broken.fd(), &byte, 1, MSG_DONTWAIT), -1) << "what broke off there breaks off here";
  forward.signal(SIGINT);
  EXPECT_TRUE(forward.wait(10));
  EXPECT_EQ(forward.result.exit_code, 130);
  EXPECT_EQ(run_isogate({"port-forward", "nobody-" + w.me.agent(), "80"}, options).exit_code, 1);
  EXPECT_EQ(run_isogate({"port-forward", w.me.agent(), "0"}, options).exit_code, 2);
}

constexpr Case kPortCases[] = {
    {"bytes_to_and_from_a_port_are_exact", 4, bytes_to_and_from_a_port_are_exact},
    {"a_port_ends_one_direction_after_the_other", 4, a_port_ends_one_direction_after_the_other},
    {"what_a_client_sent_before_it_left_arrives", 4, what_a_client_sent_before_it_left_arrives},
    {"what_a_client_sent_before_it_broke_off_arrives", 4, what_a_client_sent_before_it_broke_off_arrives},
    {"a_message_to_a_port_is_bounded", 6, a_message_to_a_port_is_bounded},
    {"a_slow_reader_holds_up_the_port", 4, a_slow_reader_holds_up_the_port},
    {"who_reads_nothing_of_a_port_is_disconnected", 6, who_reads_nothing_of_a_port_is_disconnected},
    {"where_nobody_listens_the_port_is_closed", 9, where_nobody_listens_the_port_is_closed},
    {"a_connection_that_breaks_off_does_not_end_well", 3, a_connection_that_breaks_off_does_not_end_well},
    {"a_server_on_ipv6_loopback_alone_is_found", 0, a_server_on_ipv6_loopback_alone_is_found},
    {"a_port_that_is_none_is_refused", 9, a_port_that_is_none_is_refused},
    {"a_sandbox_that_is_not_there_has_no_ports", 9, a_sandbox_that_is_not_there_has_no_ports},
    {"a_strangers_sandbox_has_no_ports", 8, a_strangers_sandbox_has_no_ports},
    {"the_gateway_itself_is_not_reached", 8, the_gateway_itself_is_not_reached},
    {"ending_the_sandbox_ends_its_connections", 1, ending_the_sandbox_ends_its_connections},
    {"what_ends_a_connection_ends_one_whose_port_has_ended", 1,
     what_ends_a_connection_ends_one_whose_port_has_ended},
    {"a_gateway_that_stops_ends_connections", 1, a_gateway_that_stops_ends_connections},
    {"a_dial_that_a_stop_cuts_is_to_be_repeated", 9, a_dial_that_a_stop_cuts_is_to_be_repeated},
    {"a_hundred_connections_at_once", 0, a_hundred_connections_at_once},
    {"connections_of_a_sandbox_are_bounded", 6, connections_of_a_sandbox_are_bounded},
    {"port_forward_carries_connections_of_this_machine", 4, port_forward_carries_connections_of_this_machine},
};

}  // namespace

std::span<const Case> port_cases() { return kPortCases; }

}  // namespace isogate::test

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "tests/contract/contract.h"

// The listener itself: connections, many of them, and requests that break the rules (fault 22).
namespace isogate::test {
namespace {

std::string request_text(const World& w, const std::string& method, const std::string& path,
                         const std::string& body, const std::string& more = {}) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer " +
                     w.gateway.key() + "\r\n" + more;
  if (!body.empty())
    text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

std::string exec_body(const World& w, const std::string& command) {
  return Json{{"command", command}, {"agent_id", w.me.agent()}}.dump();
}

void pipelined_requests_are_answered_in_order(World& w) {
  HttpConnection connection(w.gateway.url());
  connection.send(request_text(w, "POST", "/exec", exec_body(w, "sleep 0.3; echo first")) +
                  request_text(w, "POST", "/exec", exec_body(w, "echo second")) +
                  request_text(w, "GET", "/livez", ""));
  EXPECT_EQ(answer_of(connection.read_response("POST")).body.at("stdout"), "first\n");
  EXPECT_EQ(answer_of(connection.read_response("POST")).body.at("stdout"), "second\n");
  EXPECT_EQ(connection.read_response().status, 200);
  EXPECT_EQ(w.me.out("echo after"), "after\n");
}

void a_request_that_comes_byte_by_byte_is_served(World& w) {
  HttpConnection connection(w.gateway.url());
  for (const char c : request_text(w, "POST", "/exec", exec_body(w, "echo slow")))
    connection.send(std::string(1, c));
  EXPECT_EQ(answer_of(connection.read_response("POST")).body.at("stdout"), "slow\n");
}

void a_connection_serves_a_thousand_requests(World& w) {
  const int execs = 100;
  HttpConnection connection(w.gateway.url());
  Headers headers = w.me.headers();
  for (int i = 0; i < 1000; ++i) {
    const bool exec = i % (1000 / execs) == 0;
    const HttpResponse response =
        exec ? connection.request("POST", "/exec", headers, exec_body(w, "echo " + std::to_string(i)))
             : connection.request("GET", "/execs", headers);
    ASSERT_EQ(response.status, 200) << response.body;
    if (!exec) continue;
    ASSERT_EQ(answer_of(response).body.at("stdout"), std::to_string(i) + "\n");
  }
}

void refusals_leave_a_connection_in_step(World& w) {
  HttpConnection connection(w.gateway.url());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(connection.request("POST", "/exec", w.me.headers(), "{").status, 400);
    EXPECT_EQ(connection.request("GET", "/nothing", w.me.headers()).status, 404);
    EXPECT_EQ(connection.request("GET", "/exec", w.me.headers()).status, 405);
    EXPECT_EQ(connection
                  .request("POST", "/workspace/read", w.me.headers(),
                           Json{{"path", "absent"}, {"agent_id", w.me.agent()}}.dump())
                  .status,
              404);
  }
}

// Their own agents, their own bytes, all at once.
void sixty_four_clients_are_served_at_once(World& w) {
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int i = 0; i < 64; ++i)
    clients.emplace_back([&w, &right, i] {
      try {
        const Caller me = w.me.as("client-" + std::to_string(i));
        HttpConnection connection(w.gateway.url(), 300);
        for (int j = 0; j < 5; ++j) {
          const std::string word = std::to_string(i) + "-" + std::to_string(j);
          const Json request{{"command", "echo " + word + " | tee -a said; head -c 20000 /dev/zero >&2"},
                             {"agent_id", me.agent()},
                             {"timeout_sec", 100}};
          const Answer answer = answer_of(connection.request("POST", "/exec", me.headers(), request.dump()));
          if (answer.status == 200 && answer.body.at("stdout") == word + "\n" &&
              answer.body.at("stderr_bytes") == 20000) {
            ++right;
          } else {
            ADD_FAILURE() << answer.status << " " << answer.text.substr(0, 500);
          }
        }
        const std::string n = std::to_string(i);
        if (me.content("said") == n + "-0\n" + n + "-1\n" + n + "-2\n" + n + "-3\n" + n + "-4\n") ++right;
        // A gateway that stops has 30 s for what is left; on a busy machine 64 pods take longer to end.
        // An engine that is busy with so many may refuse some for a while.
        std::string last;
        EXPECT_TRUE(eventually(300, [&] {
          const Answer ended = me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true");
          last = ended.text;
          return ended.status == 200 || ended.status == 404;  // 404: what was refused came through
        })) << last;
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 64 * 6);
}

void one_agent_may_run_many_at_once(World& w) {
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  const double took = seconds_of([&] {
    for (int i = 0; i < 32; ++i)
      clients.emplace_back([&w, &right, i] {
        if (w.me.exec("sleep 1; echo " + std::to_string(i)).body.value("stdout", "") ==
            std::to_string(i) + "\n")
          ++right;
      });
    for (std::thread& client : clients) client.join();
  });
  EXPECT_EQ(right, 32);
  EXPECT_LT(took, 16.0) << "they ran one after the other";
}

void too_many_at_once_are_429(World& w) {
  const auto own = w.another("limits: {max_execs: 2, exec_queue: 1, tenant_share_percent: 100}");
  const Caller me(*own, "a"), other = me.as("b");
  for (const Caller& each : {me, other}) each.run("true");  // opening a sandbox may take longer than the rest
  ExecStream first(me, {{"command", "sleep 600"}}), second(me, {{"command", "sleep 600"}});
  ASSERT_EQ(first.next()->at("event"), "start");
  ASSERT_EQ(second.next()->at("event"), "start");
  // One of two has the only place in the queue, whichever was faster.
  const auto ask = [](const Caller& who) {
    return std::async(std::launch::async, [who] { return who.exec("echo waited"); });
  };
  std::array<std::future<Answer>, 2> both = {ask(me), ask(other)};
  const auto is_done = [&](size_t which) {
    return both[which].wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  EXPECT_TRUE(eventually(60, [&] { return is_done(0) || is_done(1); })) << "neither was refused";
  const size_t faster = is_done(0) ? 0 : 1;
  const Answer refusal = both[faster].get();
  EXPECT_TRUE(refused(refusal, 429, "rate_limited"));
  EXPECT_GE(std::atoi(refusal.header("Retry-After").c_str()), 1);
  first.connection.close();
  const Answer queued = both[1 - faster].get();
  EXPECT_EQ(queued.body.value("stdout", ""), "waited\n") << queued.text;
}

void connection_close_is_honoured(World& w) {
  HttpConnection connection(w.gateway.url());
  connection.send(request_text(w, "GET", "/livez", "", "Connection: close\r\n"));
  EXPECT_EQ(connection.read_response().status, 200);
  EXPECT_TRUE(connection.closed_within(2));
  HttpConnection old(w.gateway.url());
  old.send("GET /livez HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_response().status, 200);
  EXPECT_TRUE(old.closed_within(2));
}

// Fault 22: 4xx and close; never a second request parsed.
void ambiguous_framing_is_refused_and_closed(World& w) {
  const std::string auth =
      "Host: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + w.gateway.key() + "\r\n";
  const std::string smuggled = "POST /exec HTTP/1.1\r\n" + auth +
                               "Content-Length: " + std::to_string(exec_body(w, "touch smuggled").size()) +
                               "\r\n\r\n" + exec_body(w, "touch smuggled");
  const std::string head = "POST /exec HTTP/1.1\r\n" + auth;
  for (const std::string& start : {
           head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
           head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
           head + "Content-Length: -1\r\n\r\n",
           head + "Content-Length: 99999999999999999999999\r\n\r\n",
           head + "Content-Length: 0x10\r\n\r\n",
           head + "Content-Length: +2\r\n\r\n{}",
           head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
           head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
           head + "X-Fold: a\r\n b\r\nContent-Length : 2\r\n\r\n{}",
           head + "Host: y\r\nContent-Length: 2\r\n\r\n{}",
           std::string("POST /exec HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
           std::string("POST /exec HTTP/2.0\r\nHost: x\r\n\r\n"),
           std::string("POST  /exec HTTP/1.1\r\nHost: x\r\n\r\n"),
           std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
           "GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(70000, 'h') + "\r\n\r\n",
           "GET /" + std::string(70000, 'u') + " HTTP/1.1\r\nHost: x\r\n\r\n",
       }) {
    HttpConnection connection(w.gateway.url());
    std::string said;
    bool reset = false;
    try {
      connection.send(start + smuggled);
      connection.finish_sending();
      said = connection.read_until_closed();
    } catch (const std::runtime_error&) {
      reset = true;  // closed while we were still sending
    }
    const std::string shown =
        start.substr(0, 60) + " … " + start.substr(std::max<size_t>(60, start.size()) - 60);
    EXPECT_TRUE(reset || said.rfind("HTTP/1.1 4", 0) == 0)
        << shown << " was answered " << said.substr(0, 300);
    EXPECT_EQ(said.find("HTTP/1.1 ", 5), std::string::npos) << shown << ": a second answer in " << said;
  }
  EXPECT_EQ(w.me.out("ls -A"), "");
}

void a_body_that_was_not_read_is_no_request(World& w) {
  const std::string inner = request_text(w, "POST", "/exec", exec_body(w, "touch smuggled"));
  HttpConnection connection(w.gateway.url());
  connection.send("PUT /workspace/files/" + w.me.agent() + "/x HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                  std::to_string(inner.size()) + "\r\n\r\n" + inner);
  EXPECT_EQ(connection.read_response("PUT").status, 401);
  EXPECT_TRUE(connection.closed_within(5))
      << "the body of a refused request was neither read nor did it end the connection";
  EXPECT_EQ(w.me.out("ls -A"), "");
}

void a_header_has_a_deadline(World& w) {
  const auto own = w.another("limits: {header_timeout_sec: 1, body_idle_timeout_sec: 1}");
  HttpConnection head(own->url(), 8), body(own->url(), 8);  // the defaults are 10 and 30 s
  head.send("GET /livez HTTP/1.1\r\nX-Slow: ");
  body.send("POST /exec HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
            own->key() + "\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_TRUE(refused(answer_of(head.read_response()), 408, "request_timeout"));
  EXPECT_TRUE(refused(answer_of(body.read_response("POST")), 408, "request_timeout"));
  EXPECT_TRUE(head.closed_within(3));
}

const Case kHttpCases[] = {
    {"pipelined_requests_are_answered_in_order", 0, pipelined_requests_are_answered_in_order},
    {"a_request_that_comes_byte_by_byte_is_served", 0, a_request_that_comes_byte_by_byte_is_served},
    {"a_connection_serves_a_thousand_requests", 0, a_connection_serves_a_thousand_requests},
    {"refusals_leave_a_connection_in_step", 0, refusals_leave_a_connection_in_step},
    {"sixty_four_clients_are_served_at_once", 0, sixty_four_clients_are_served_at_once},
    {"one_agent_may_run_many_at_once", 0, one_agent_may_run_many_at_once},
    {"too_many_at_once_are_429", 0, too_many_at_once_are_429},
    {"connection_close_is_honoured", 0, connection_close_is_honoured},
    {"ambiguous_framing_is_refused_and_closed", 0, ambiguous_framing_is_refused_and_closed},
    {"a_body_that_was_not_read_is_no_request", 0, a_body_that_was_not_read_is_no_request},
    {"a_header_has_a_deadline", 0, a_header_has_a_deadline},
};

}  // namespace

std::span<const Case> http_cases() { return kHttpCases; }

}  // namespace isogate::test

// Downloads and uploads on the wire: when their bytes arrive, and how they end.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <vector>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class Transfers : public Framing {
 protected:
  // Milliseconds that a download takes longer over TCP than over the Unix socket, by the medians of many.
  static double more_over_tcp(const std::string& path, const std::string& expected) {
    HttpConnection tcp(gateway().url()), local(gateway().unix_url());
    std::vector<double> over_tcp, over_local;
    const auto get = [&](HttpConnection& connection) {
      return 1000 * seconds_of([&] {
               EXPECT_TRUE(connection.request("GET", path, me().headers()).body == expected);
             });
    };
    for (int i = 0; i < 15; ++i) {
      over_tcp.push_back(get(tcp));
      over_local.push_back(get(local));
    }
    for (auto* took : {&over_tcp, &over_local})
      std::nth_element(took->begin(), took->begin() + 7, took->end());
    return over_tcp[7] - over_local[7];
  }
};

// Bytes that are held back wait for the client's delayed acknowledgement, 40 ms, or for the kernel's 200 ms.
TEST_F(Transfers, TheLastBytesOfADownloadAreNotHeldBack) {
  for (const size_t size : {size_t{100}, size_t{70000}}) {
    const std::string bytes(size, 'x');
    ASSERT_TRUE(succeeded(me().call("PUT", me().file_url("file"), {}, bytes)));
    double best = 1e9;
    for (int round = 0; round < 5 && best >= 25; ++round)
      best = std::min(best, more_over_tcp(me().file_url("file"), bytes));
    EXPECT_LT(best, 25) << size << " bytes";
  }
}

// Most clients send all of a body before they read, and a reset makes them lose the response.
TEST_F(Transfers, TheRefusalOfALargeBodyReachesWhoStillSendsIt) {
  Gateway other("allow_unisolated: true\nbackends: [{name: local}]\nlimits: {max_json_bytes: 1048576}\n");
  const Caller caller(other, "a");
  const std::string body(60 << 20, 'x');
  for (const std::string& url : {other.url(), other.unix_url()}) {
    HttpConnection length(url);
    EXPECT_EQ(length.request("POST", "/workspace/write", caller.headers(), body).status, 413) << url;
    HttpConnection directory(url);
    EXPECT_EQ(directory.request("PUT", caller.file_url("."), caller.headers(), body).status / 100, 4) << url;
    HttpConnection chunked(url);
    Headers headers = caller.headers();
    headers.emplace_back("Transfer-Encoding", "chunked");
    chunked.send_request_head("POST", "/workspace/write", headers);
    for (int i = 0; i < 60; ++i) {
      chunked.send("100000\r\n");
      chunked.send(std::string_view(body).substr(0, 1 << 20));
      chunked.send("\r\n");
    }
    chunked.send("0\r\n\r\n");
    EXPECT_EQ(chunked.read_response("POST").status, 413) << url;
  }
}

TEST_F(Transfers, ALargeStdinAndALargeOutputFitIntoOneCall) {
  const Json body = {{"agent_id", agent()},
                     {"command", "wc -c; head -c 10485760 /dev/zero | tr '\\0' x"},
                     {"stdin", std::string(20 << 20, 'x')},
                     {"max_output_bytes", 12 << 20}};
  const std::string text = body.dump();
  HttpConnection connection(gateway().url(), 120);
  const Answer answer = answer_of(connection.request("POST", "/exec", me().headers(), text));
  ASSERT_TRUE(succeeded(answer));
  EXPECT_TRUE(answer.body.at("stdout") == "20971520\n" + std::string(10 << 20, 'x'));
  EXPECT_EQ(answer.body.at("truncated"), false);
}

// Its size is reported as 0 or as a page, whatever it contains.
TEST_F(Transfers, AKernelFileComesWholeWithoutALengthBefore) {
  const auto get = [](const std::string& method, const std::string& path) {
    return me().call(method, me().file_url("/" + path) + "?scope=sandbox");
  };
  const std::string version = me().out("cat /proc/version");
  const Answer whole = get("GET", "proc/version");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.text, version);
  EXPECT_EQ(whole.header("Content-Length"), "");
  EXPECT_EQ(whole.header("ETag"), "");
  EXPECT_EQ(get("HEAD", "proc/version").status, 200);
  const std::string page = "sys/kernel/mm/transparent_hugepage/enabled";
  if (const std::string enabled = me().out("cat /" + page + " 2>&1; true"); enabled[0] != 'c') {
    EXPECT_EQ(get("GET", page).text, enabled);
  }
  EXPECT_TRUE(refused(get("GET", "proc/self/maps"), 403, "permission_denied"));
  const auto read = [](Json body) {
    body["path"] = "/proc/version";
    body["scope"] = "sandbox";
    return me().post("/workspace/read", body).body;
  };
  EXPECT_EQ(read({}).at("content"), version);
  EXPECT_EQ(read({}).at("size"), version.size());
  EXPECT_EQ(read({{"offset", 2}, {"limit", 5}}).at("content"), version.substr(2, 5));
  EXPECT_TRUE(read({{"limit", 5}}).at("size").is_null());
}

// Two files take turns under one name; each is all of one byte, and they differ in length.
TEST_F(Transfers, ADownloadIsOfOneFile) {
  for (const size_t size : {size_t{2000}, size_t{3} << 20}) {
    const std::string a(size, 'a'), b(size + size / 2, 'b');
    ASSERT_TRUE(succeeded(me().call("PUT", me().file_url("a"), {}, a)));
    ASSERT_TRUE(succeeded(me().call("PUT", me().file_url("b"), {}, b)));
    ASSERT_TRUE(succeeded(me().call("PUT", me().file_url("file"), {}, a)));
    ExecStream swaps(me(), {{"command", "while :; do ln -f a t; mv -f t file; ln -f b t; mv -f t file; done"},
                            {"timeout_sec", 60}});
    int whole = 0;
    for (int i = 0; i < 60; ++i) {
      try {
        HttpConnection connection(gateway().url());
        const HttpResponse answer = connection.request("GET", me().file_url("file"), me().headers());
        if (answer.status != 200) {
          EXPECT_TRUE(refused(answer_of(answer), 409, "file_busy"));
          continue;
        }
        EXPECT_TRUE(answer.body == a || answer.body == b) << answer.body.size();
        ++whole;
      } catch (const std::runtime_error&) {  // cut
      }
    }
    EXPECT_GT(whole, 0) << size;
  }
}

// A stopped host reads nothing, writes nothing and answers nothing.
TEST_F(Transfers, ABackendThatStopsDoesNotHoldAClient) {
  Gateway other("allow_unisolated: true\nbackends: [{name: local}]\nlimits: {body_idle_timeout_sec: 2}\n");
  const Caller caller(other, "a");
  ASSERT_EQ(caller.run("head -c 5000000 /dev/zero > big").at("exit_code"), 0);
  const pid_t host = host_of(other, "local");
  ASSERT_GT(host, 0);
  ::kill(host, SIGSTOP);
  ASSERT_TRUE(eventually(10, [host] { return stands_still(host); }));
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::future<int>> calls;
  const auto call = [&](const std::string& method, const std::string& path, const std::string& body) {
    calls.push_back(std::async(std::launch::async, [&other, &caller, method, path, body] {
      HttpConnection connection(other.url(), 50);
      return connection.request(method, path, caller.headers(), body).status;
    }));
  };
  call("GET", caller.file_url("big"), "");
  call("PUT", caller.file_url("small"), "x");
  call("PUT", caller.file_url("large"), std::string(8 << 20, 'x'));
  call("POST", "/workspace/stat", R"({"agent_id":"a","path":"big"})");
  call("POST", "/workspace/list", R"({"agent_id":"a"})");
  for (auto& each : calls) EXPECT_GE(each.get(), 500);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
  ::kill(host, SIGCONT);
  EXPECT_TRUE(eventually(20, [&] { return caller.call("GET", caller.file_url("big")).status == 200; }));
}

}  // namespace
}  // namespace isogate::test

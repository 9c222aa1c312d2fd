// One row per way to make two parsers disagree. Each gets one 4xx and a close; a request after it is never
// parsed, and does not create its file.
#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

std::string name_of(const testing::TestParamInfo<Row>& row) { return row.param.name; }

class HostileFraming : public Framing, public testing::WithParamInterface<Row> {
 protected:
  // The agent of this row, and its bytes with that name in them.
  static Caller caller(const std::string& prefix) {
    return me().as(prefix + std::string(GetParam().name).substr(0, 55));
  }
};

TEST_P(HostileFraming, IsRefusedAndClosed) {
  const Caller mine = caller("h-");
  const std::string start = filled(GetParam().bytes, gateway(), mine.agent());
  for (const bool then_close : {false, true}) {
    const Said said = say(gateway().url(), start + marker_request(gateway(), mine.agent()), then_close);
    EXPECT_TRUE(said.closed) << "still open after `" << said.bytes.substr(0, 200) << "`";
    EXPECT_EQ(said.answers(), 1) << said.bytes;
    EXPECT_EQ(said.status(), GetParam().status) << said.bytes;
    EXPECT_NE(said.bytes.find("\r\nConnection: close\r\n"), std::string::npos) << said.bytes;
    EXPECT_NE(said.bytes.find("\"code\":\"invalid_request\""), std::string::npos) << said.bytes;
  }
  EXPECT_EQ(mine.out("ls -A"), "") << "something was written";
}

// The same if the network splits the bytes anywhere.
TEST_P(HostileFraming, IsRefusedByteByByte) {
  const Caller mine = caller("b-");
  const std::string start = filled(GetParam().bytes, gateway(), mine.agent());
  const std::string all = start + marker_request(gateway(), mine.agent());
  const size_t step = all.size() > 2000 ? 997 : 1;
  HttpConnection connection(gateway().url(), 20);
  Said said;
  try {
    for (size_t at = 0; at < all.size(); at += step) connection.send(all.substr(at, step));
  } catch (const std::runtime_error&) {  // closed while we were still sending
  }
  said.bytes = connection.read_until_closed();
  EXPECT_EQ(said.status(), 400) << said.bytes;
  EXPECT_EQ(said.answers(), 1) << said.bytes;
  EXPECT_EQ(mine.out("ls -A"), "") << "something was written";
}

INSTANTIATE_TEST_SUITE_P(Table, HostileFraming, testing::ValuesIn(hostile_rows()), name_of);

class FineFraming : public Framing, public testing::WithParamInterface<Row> {};

TEST_P(FineFraming, IsServedAndSoIsTheNext) {
  const Caller caller = me().as("f-" + std::string(GetParam().name));
  HttpConnection connection(gateway().url(), 10);
  connection.send(filled(GetParam().bytes, gateway(), caller.agent()) +
                  marker_request(gateway(), caller.agent()));
  EXPECT_EQ(connection.read_response("PUT").status, GetParam().status);
  EXPECT_EQ(connection.read_response("PUT").status, 200);
  EXPECT_EQ(caller.content("smuggled"), "x");
}

INSTANTIATE_TEST_SUITE_P(Table, FineFraming, testing::ValuesIn(fine_rows()), name_of);

}  // namespace
}  // namespace isogate::test

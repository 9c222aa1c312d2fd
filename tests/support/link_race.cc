#include "tests/support/link_race.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "tests/support/program.h"

namespace isogate::test {
namespace {

constexpr int kQuickCalls = 3000, kSlowCalls = 100'000, kCallsOfRound = 20'000;

std::string swapping(const std::string& outside) {
  return "import ctypes,os\n"
         "libc=ctypes.CDLL(None)\n"
         "for n in ('d','lnk','lnk2'): os.system('rm -rf '+n)\n"
         "os.mkdir('d'); open('d/f','w').write('INSIDE'); os.symlink('" +
         outside + "','lnk'); os.symlink('../../../../../../../../../..' + '" + outside +
         "','lnk2')\n"
         "while True:\n"
         "  libc.syscall(316,-100,b'd',-100,b'lnk',2); libc.syscall(316,-100,b'lnk',-100,b'lnk2',2)\n";
}

void try_all(const Caller& me, const std::string& d, const Json& more, LinkRace& race) {
  const Answer read = me.read(d + "/f", more);
  ++(read.status == 200 ? race.inside : race.held);
  if (read.text.find("OUTSIDE") != std::string::npos) race.escaped += "read ";
  me.write(d + "/w", "x", more);
  Json made = more, gone = more;
  made["path"] = d + "/m/a/b";
  gone["path"] = d + "/f2";
  me.post("/workspace/mkdir", made);
  me.post("/workspace/remove", gone);
  if (more.empty())
    me.call("PUT", me.file_url(d + "/p"), {}, "x");
  else
    me.exec("pwd > p", {{"cwd", "d"}});
  race.tries += 5;
}

void race_a_round(const Caller& me, const std::string& d, const Json& more, int calls, LinkRace& race) {
  ExecStream racing(me, {{"argv", {"/usr/bin/python3", "swap.py"}}, {"timeout_sec", 90}});
  if (racing.head.status != 200) throw std::runtime_error("the race was not started: " + racing.head.body);
  if (racing.next()->at("event") != "start") throw std::runtime_error("the race was not started");
  if (!eventually(5, [&] { return me.read("d/f").status != 404; })) throw std::runtime_error("no race");
  for (const int end = race.tries + calls; race.tries < end;) try_all(me, d, more, race);
}

}  // namespace

LinkRace race_links(const Caller& me, const std::string& prefix, const Json& more) {
  const TemporaryDirectory outside;
  if (::chmod(outside.path().c_str(), 0777) != 0) throw std::runtime_error("chmod failed");
  outside.file("f", "OUTSIDE", 0666);
  outside.file("f2", "OUTSIDE", 0666);
  if (me.write("swap.py", swapping(outside.path())).status != 200) throw std::runtime_error("write failed");
  // On `local` this is the same directory.
  const std::string& place = outside.path();
  if (!more.contains("scope") &&
      me.out("mkdir -p " + place + " && cd " + place + " && printf OUTSIDE | tee f f2") != "OUTSIDE")
    throw std::runtime_error("nothing outside of the workspace was planted in the sandbox");
  LinkRace race;
  for (int left = slow_tests() ? kSlowCalls : kQuickCalls; left > 0; left -= kCallsOfRound)
    race_a_round(me, prefix + "d", more, std::min(left, kCallsOfRound), race);
  for (const auto& entry : std::filesystem::directory_iterator(outside.path()))
    if (const std::string name = entry.path().filename(); name != "f" && name != "f2")
      race.escaped += name + " ";
  if (!std::filesystem::exists(outside.path() + "/f2")) race.escaped += "removed f2 ";
  if (more.contains("scope")) return race;
  if (const std::string left = me.out("ls -A " + place + " | tr '\\n' ' '; cat " + place + "/f2");
      left != "f f2 OUTSIDE")
    race.escaped += "in the sandbox: " + left;
  return race;
}

}  // namespace isogate::test

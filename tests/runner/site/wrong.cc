// One way at a time to build a command that does not say where it runs. WAY 0 is right and compiles; no other
// does.
#include "runner/enclosure/enclosure.h"

using isogate::Command;
using isogate::Site;

int main() {
#if WAY == 0
  Command command(Site::host());
  Site site = command.site;
#elif WAY == 1
  Command command;
#elif WAY == 2
  Command command{};
#elif WAY == 3
  Command command(nullptr);
#elif WAY == 4
  Site site;
#elif WAY == 5
  Site site{};
#elif WAY == 6
  Site site(nullptr);
#elif WAY == 7
  Site site{std::shared_ptr<isogate::Enclosure>()};
#elif WAY == 8
  Command command(Site::host());
  command.site = {};
#elif WAY == 9
  Command command(Site::host());
  command.site = nullptr;
#elif WAY == 10
  auto evidence = isogate::Runner::make({})->measure({}, {}, {});
#endif
}

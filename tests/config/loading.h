// Loads a configuration from a text, as the tests of this folder need it.
#pragma once

#include <string>

#include "gateway/config/load.h"
#include "gateway/config/settings.h"
#include "gateway/config/settings_table.h"

namespace isogate::test {

// A directory that is removed with this object.
class Directory {
 public:
  Directory();
  ~Directory();
  [[nodiscard]] const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

struct Sources {
  std::string yaml;  // "-": no file
  TextPairs environment = {}, flags = {};
  std::vector<std::string> backends = {};
  int port = -1;
  bool reload = false;
};

// As load_config(); the file is called c.yaml in messages, and HOME is /home/me.
Result<Loaded> load(const Sources& sources);

Loaded loaded(const Sources& sources);        // fails the test where it does not load
std::string refusal(const Sources& sources);  // the message; fails the test where it loads

}  // namespace isogate::test

#include "tests/config/loading.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace isogate::test {
namespace {

std::string renamed(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

Directory::Directory() : path_((std::filesystem::temp_directory_path() / "isogate-config-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

Directory::~Directory() { std::filesystem::remove_all(path_); }

std::string Directory::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  return path_ + "/" + name;
}

Result<Loaded> load(const Sources& sources) {
  Directory directory;
  LoadOptions options;
  if (sources.yaml != "-") options.file = directory.write("c.yaml", sources.yaml);
  options.environment = sources.environment;
  options.environment.emplace_back("HOME", "/home/me");
  options.flags = sources.flags;
  options.backends = sources.backends;
  options.port = sources.port;
  options.reload = sources.reload;
  auto result = load_config(options);
  std::string prefix = directory.path() + "/";
  if (!result) {
    result.error().message = renamed(result.error().message, prefix, "");
    return result;
  }
  for (std::string& warning : result->warnings) warning = renamed(warning, prefix, "");
  return result;
}

Loaded loaded(const Sources& sources) {
  auto result = load(sources);
  if (result) return std::move(*result);
  ADD_FAILURE() << result.error().message;
  return {};
}

std::string refusal(const Sources& sources) {
  auto result = load(sources);
  if (!result) return result.error().message;
  ADD_FAILURE() << "loaded: " << sources.yaml;
  return {};
}

}  // namespace isogate::test

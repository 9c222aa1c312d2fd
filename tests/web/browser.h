// Headless Chromium, and a server of foreign pages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/api.h"

namespace isogate::test {

// Why there is no browser here; empty: there is.
std::string browser_obstacle();

// Opens the address and returns the document once it is completely loaded. `more` goes on the command line.
std::string browse(const std::string& address, const std::vector<std::string>& more = {});

// A browser that stays at an address as long as this lives.
class BrowserWindow {
 public:
  explicit BrowserWindow(const std::string& address);
  BrowserWindow(const BrowserWindow&) = delete;
  BrowserWindow& operator=(const BrowserWindow&) = delete;
  ~BrowserWindow();

 private:
  TemporaryDirectory profile_;
  Program program_;
};

// Serves pages on its own loopback port: another origin than the gateway's. The image /wait is not loaded
// before the page has fetched /done, so that a page keeps loading while its script runs.
class PageServer {
 public:
  PageServer();
  void put(const std::string& name, const std::string& html) const { (void)directory_.file(name, html); }
  [[nodiscard]] std::string origin() const { return "http://127.0.0.1:" + port_; }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<Program> program_;
  std::string port_;
};

}  // namespace isogate::test

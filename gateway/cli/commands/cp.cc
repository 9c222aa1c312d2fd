// isogate cp
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/copy_tree.h"
#include "gateway/cli/output.h"
#include "gateway/cli/progress.h"
#include "lib/json.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostShown = 20;

// One side of a copy: `AGENT:PATH`, where AGENT may be empty, a path of this machine, or `-`.
struct Side {
  bool remote = false;
  std::string agent, path;

  [[nodiscard]] bool is_stream() const { return !remote && path == "-"; }
  [[nodiscard]] std::string text() const { return remote ? agent + ":" + path : path; }
};

// A path with a slash before its first colon is local: `./a:b`.
Side side_of(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || text.find('/') < colon) return {.path = text};
  return {.remote = true, .agent = text.substr(0, colon), .path = text.substr(colon + 1)};
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string last_name(const std::string& path) {
  const std::string bare = without_slashes(path);
  return bare.substr(bare.rfind('/') + 1);
}

std::string joined(const std::string& directory, const std::string& name) {
  if (directory.empty() || directory.ends_with('/')) return directory + name;
  return directory + "/" + name;
}

// `DIR/.`, and a whole workspace: what is in it is copied, not the directory itself.
bool means_content(const std::string& path) {
  const std::string name = last_name(path);
  return name.empty() || name == "." || name == "..";
}

enum class Kind { kNothing, kFile, kDirectory };

struct Found {
  Kind kind = Kind::kNothing;
  std::optional<uint32_t> mode;
};

class Copy {
 public:
  explicit Copy(const CopyOptions& options)
      : options_(options), from_(side_of(options.from)), to_(side_of(options.to)) {}

  int run() {
    if (from_.remote == to_.remote)
      return report(invalid("one of the two is AGENT:PATH, the other a path of this machine or -"), json());
    const Side& there = from_.remote ? from_ : to_;
    if (!is_utf8(there.path)) return report(invalid("the path in the workspace is not UTF-8"), json());
    if (json() && to_.is_stream())
      return report(invalid("--json and a copy to stdout do not go together"), json());
    auto client = find_gateway(options_.client);
    if (!client.ok()) return report(client.error(), json());
    client_ = std::make_unique<HttpClient>(std::move(*client));
    return from_.remote ? download() : upload();
  }

 private:
  [[nodiscard]] bool json() const { return options_.client.json; }

  int failed(const Error& error) const { return report_local(error, json()); }

  int refuse(const std::string& why, const char* advice = nullptr) const {
    if (json()) return report(Error{ISOGATE_IO, 0, why}, true), kFailed;
    complain(why);
    if (advice != nullptr) advise(advice);
    return kFailed;
  }

  int refuse_directory(const Side& side) const {
    return refuse("`" + side.text() + "` is a directory", "`isogate cp -r` copies it and all that is in it.");
  }

  // ---- what is there

  Result<HttpAnswer> stat(const Side& side, const std::string& path) {
    return client_->call(post("/workspace/stat", file_body(file_options<FileOptions>(side, path))));
  }

  // False: what went wrong is reported, and exit_code_ is set. A missing file is found to be nothing.
  bool look_at(const Side& side, Found& found) {
    auto answer = stat(side, side.path);
    if (answer.ok() && answer->ok() && type_of(*answer) == "symlink") {
      auto behind = stat(side, without_slashes(side.path) + "/");
      if (behind.ok() && behind->ok()) answer = std::move(behind);
    }
    if (!answer.ok()) return exit_code_ = report(answer.error(), json()), false;
    if (answer->status == 404 && answer->body.find("\"file_not_found\"") != std::string::npos) {
      missing_ = *answer;
      return true;
    }
    if (!answer->ok()) return exit_code_ = report_refusal(*answer, json()), false;
    const std::string type = type_of(*answer);
    if (type.empty()) {
      complain("the gateway's response is invalid: " + answer->body.substr(0, 200));
      return exit_code_ = kGateway, false;
    }
    found.kind = type == "directory" ? Kind::kDirectory : Kind::kFile;
    const std::string mode = OrderedJson::parse(answer->body).value("mode", "");
    if (type == "file")
      if (const auto bits = number_in<uint32_t>(mode, 8)) found.mode = *bits & 0777;
    return true;
  }

  static std::string type_of(const HttpAnswer& answer) {
    return text_at(Json::parse(answer.body, nullptr, false), "type");
  }

  template <typename Options>
  Options file_options(const Side& side, const std::string& path) const {
    Options file;
    file.client = options_.client;
    file.agent = side.agent;
    file.scope = options_.scope;
    file.user = options_.user;
    file.path = path;
    return file;
  }

  [[nodiscard]] std::string archive_target(const Side& side, bool replace = false) const {
    return "/workspace/archive" + Query()
                                      .add("path", side.path)
                                      .add("agent_id", side.agent)
                                      .add("scope", options_.scope)
                                      .add("user", options_.user)
                                      .flag("replace", replace)
                                      .text();
  }

  // ---- out of a workspace

  int download() {
    Found found;
    if (!look_at(from_, found)) return exit_code_;
    if (found.kind == Kind::kNothing) return report_refusal(missing_, json());
    if (found.kind == Kind::kDirectory && !options_.recursive) return refuse_directory(from_);
    if (to_.is_stream() && options_.recursive) return archive_to_stdout();
    if (found.kind == Kind::kDirectory) return download_tree();
    auto file = file_options<ReadOptions>(from_, from_.path);
    file.progress = true;
    file.output = to_.path;
    file.mode = found.mode;
    struct stat info {};
    const bool into = ::stat(to_.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    if (!to_.is_stream() && (into || to_.path.ends_with('/')))
      file.output = joined(to_.path, last_name(from_.path));
    return run_read(file);
  }

  Result<HttpAnswer> get_archive(const BodySink& sink) {
    HttpRequest request;
    request.method = "GET";
    request.target = archive_target(from_);
    Progress progress;
    return client_->call(request, [&](std::string_view bytes) {
      progress.moved(bytes.size());
      return sink(bytes);
    });
  }

  // Read along, since only its end shows that it is complete.
  int archive_to_stdout() {
    TarReader reader;
    std::string skipped;
    auto answer = get_archive([&](std::string_view bytes) -> Result<void> {
      if (auto written = write_all(1, bytes); !written.ok()) return written;
      for (;;) {
        const auto step = reader.next(bytes);
        if (!step)
          return Error{ISOGATE_LOST, 0, "the gateway's response is invalid: " + step.error().message};
        if (*step == TarReader::Step::kMore) return {};
        if (*step == TarReader::Step::kMember && !reader.member().skipped.empty())
          skipped = reader.member().skipped;
      }
    });
    if (!answer.ok()) return failed(answer.error());
    if (!answer->ok()) return report_refusal(*answer, json());
    if (auto whole = reader.finish(); !whole.ok())
      return failed({ISOGATE_LOST, 0, "the gateway's answer is cut short: " + whole.error().message});
    return tell_left_out(skipped_of(skipped), {});
  }

  int download_tree() {
    std::string path = to_.path;
    struct stat info {};
    const bool there = ::stat(path.c_str(), &info) == 0;
    if (there && !S_ISDIR(info.st_mode))
      return refuse("cannot write a directory to `" + path + "`: a file is there");
    if (there && !means_content(from_.path)) path = joined(path, last_name(from_.path));
    const bool made = ::mkdir(path.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) return failed(os_error("cannot make the directory `" + path + "`", errno));
    // Below what was named, an earlier copy or a stranger may have left a symlink.
    Fd top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (path == to_.path ? 0 : O_NOFOLLOW)));
    if (!top) return failed(os_error("cannot write to `" + path + "`", errno));
    TreeExtractor extractor(std::move(top), without_slashes(path), made);
    auto answer = get_archive([&](std::string_view bytes) { return extractor.take(bytes); });
    if (!answer.ok()) return failed(answer.error());
    if (!answer->ok()) {
      if (made) ::rmdir(path.c_str());
      return report_refusal(*answer, json());
    }
    if (auto whole = extractor.finish(); !whole.ok()) return failed(whole.error());
    const OrderedJson skipped = skipped_of(extractor.skipped());
    if (json()) print_figures(extractor, skipped);
    return tell_left_out(skipped, extractor.left_out());
  }

  static void print_figures(const TreeExtractor& extractor, OrderedJson skipped) {
    OrderedJson all = skipped.value("skipped", OrderedJson::array());
    for (const auto& [path, why] : extractor.left_out()) all.push_back({{"path", path}, {"reason", why}});
    const uint64_t total = skipped.value("skipped_total", uint64_t{0}) + extractor.left_out().size();
    const OrderedJson figures = {{"files", extractor.files()},
                                 {"directories", extractor.directories()},
                                 {"bytes", extractor.bytes()},
                                 {"skipped", all},
                                 {"skipped_total", total}};
    print(figures.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  }

  static OrderedJson skipped_of(const std::string& text) {
    OrderedJson skipped = OrderedJson::parse(text.empty() ? "{}" : text, nullptr, false);
    return skipped.is_object() ? skipped : OrderedJson::object();
  }

  // ---- into a workspace

  int upload() {
    if (from_.is_stream()) return options_.recursive ? archive_from_stdin() : upload_file("", {});
    struct stat info {};
    if (::stat(from_.path.c_str(), &info) != 0)
      return failed(os_error("cannot read `" + from_.path + "`", errno));
    if (S_ISDIR(info.st_mode) && !options_.recursive) return refuse_directory(from_);
    Found found;
    if (!look_at(to_, found)) return exit_code_;
    if (S_ISDIR(info.st_mode)) return upload_tree(found);
    const bool into = found.kind == Kind::kDirectory || to_.path.ends_with('/');
    return upload_file(into ? last_name(from_.path) : "", S_ISREG(info.st_mode) ? info.st_mode & 0777 : 0);
  }

  int upload_file(const std::string& below, uint32_t mode) {
    auto file = file_options<WriteOptions>(to_, below.empty() ? to_.path : joined(to_.path, below));
    file.progress = true;
    file.source = from_.path;
    file.replace = options_.replace;
    if (mode != 0) file.mode = octal_mode(mode);
    return run_write(file);
  }

  int archive_from_stdin() {
    HttpRequest request;
    request.body_fd = 0;
    return put_archive(std::move(request), {});
  }

  int upload_tree(const Found& found) {
    if (found.kind == Kind::kFile)
      return refuse("cannot write a directory to `" + to_.text() + "`: a file is there");
    Fd top(::open(from_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!top) return failed(os_error("cannot read `" + from_.path + "`", errno));
    const bool below = found.kind == Kind::kDirectory && !means_content(from_.path);
    const std::string prefix = below ? last_name(from_.path) + "/" : "";
    HttpRequest request;
    LeftOut left_out;
    request.body_writer = [&](const BodySink& sink) {
      return archive_tree(top.get(), prefix, sink, left_out);
    };
    return put_archive(std::move(request), left_out);
  }

  int put_archive(HttpRequest request, const LeftOut& left_out) {
    request.method = "PUT";
    request.target = archive_target(to_, options_.replace);
    request.content_type = "application/x-tar";
    std::optional<Progress> progress(std::in_place);
    request.sent = [&](uint64_t bytes) { progress->moved(bytes); };
    auto answer = client_->call(request);
    progress.reset();
    if (!answer.ok()) return failed(answer.error());
    const OrderedJson body = OrderedJson::parse(answer->body, nullptr, false);
    if (!answer->ok()) {
      const int code = report_refusal(*answer, json());
      if (!json()) advise_written(body);
      return code;
    }
    if (!body.is_object())
      return complain("the gateway's response is invalid: it is no JSON object"), kGateway;
    if (json()) print(answer->body);
    return tell_left_out(body, left_out);
  }

  static void advise_written(const OrderedJson& body) {
    const OrderedJson details = body.is_object()
                                    ? body.value("/error/details"_json_pointer, OrderedJson::object())
                                    : OrderedJson::object();
    if (!details.is_object() || !details.contains("files")) return;
    advise("Before that, " + details["files"].dump() + " files and " +
           details.value("directories", OrderedJson(0)).dump() + " directories were written.");
  }

  // ---- what was not copied makes the copy incomplete: kFailed

  static int tell_left_out(const OrderedJson& skipped, const LeftOut& left_out) {
    LeftOut all = left_out;
    uint64_t total = left_out.size();
    for (const OrderedJson& one : skipped.value("skipped", OrderedJson::array())) {
      const std::string path =
          decoded_name(one.at("path").get<std::string>(), one.value("path_encoding", ""));
      std::string reason = one.at("reason").get<std::string>();
      for (char& c : reason)
        if (c == '_') c = ' ';
      all.emplace_back(path, reason);
    }
    total += skipped.value("skipped_total", uint64_t{0});
    for (size_t i = 0; i < all.size() && i < kMostShown; ++i)
      complain("left out: `" + printable(all[i].first, 200) + "`: " + all[i].second);
    if (total > kMostShown) complain("left out: " + std::to_string(total) + " in all");
    return total == 0 ? kDone : kFailed;
  }

  const CopyOptions& options_;
  const Side from_, to_;
  std::unique_ptr<HttpClient> client_;
  HttpAnswer missing_;
  int exit_code_ = kDone;
};

}  // namespace

int run_copy(const CopyOptions& options) { return Copy(options).run(); }

}  // namespace isogate::cli

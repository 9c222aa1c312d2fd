#include "plugins/docker/files/user_names.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "lib/fd.h"
#include "lib/hash.h"
#include "lib/tar/tar_reader.h"
#include "lib/tar/tar_writer.h"
#include "lib/text.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/files/volumes.h"
#include "plugins/docker/services.h"

namespace isogate::docker {
namespace {

constexpr size_t kMostImages = 64;  // whose names are known at once
constexpr size_t kMostArchive = 16u << 20;
constexpr size_t kMostWritten = 256u << 10;  // for each sandbox
constexpr const char* kDirectory = "identity";
constexpr const char* kEtc = "/etc";
constexpr const char* kPasswd = "/etc/passwd";
constexpr const char* kGroup = "/etc/group";

// Nothing where the image has no such file.
std::optional<std::string> read_file(Services& services, const std::string& id, const char* path,
                                     const Budget& budget) {
  std::string archive;
  const auto gather = [&archive](std::string_view piece) {
    if (archive.size() + piece.size() > kMostArchive)
      throw sdk::Error(ISOGATE_RESOURCE_EXHAUSTED, "a file of the image is too large");
    archive += piece;
  };
  if (!net::unless_gone([&] { services.engine.get_archive(id, path, gather, budget); })) return std::string();
  return file_in_archive(archive);
}

// From a container that is never started.
ImageUsers read_image(Services& services, const std::string& image, const sdk::Call& call) {
  const Owner owner{std::string(sdk::view(services.host.abi().instance)),
                    std::string(sdk::view(services.host.abi().backend_name)), "-"};
  const std::string name = "isg-users-" + sha256_hex(owner.instance + '\0' + owner.backend).substr(0, 32);
  ImageUsers users;
  const auto read = [&](const std::string& id) {
    try {
      users.users = names_in(read_file(services, id, kPasswd, call));
      users.groups = names_in(read_file(services, id, kGroup, call));
    } catch (const sdk::Error& error) {  // too large, and it will stay so
      if (error.status() != ISOGATE_RESOURCE_EXHAUSTED) throw;
      users = {};
    }
    (void)services.engine.inspect(id, call);  // of one that was pruned meanwhile, a 404 says nothing
  };
  with_filler(services, owner, name, {{"Image", image}}, services.config.platform, call, read);
  return users;
}

// The operator's own file or directory replaces the image's.
bool is_configured(const Config& config, const std::string& path) {
  const auto covers = [&path](const auto& each) { return (path + "/").starts_with(each.target + "/"); };
  return std::any_of(config.mounts.begin(), config.mounts.end(), covers) ||
         std::any_of(config.copies.begin(), config.copies.end(), covers);
}

void write_file(int directory, const char* name, const std::string& text) {
  const Fd file(::openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file || ::fchmod(file.get(), 0644) != 0 || !write_all(file.get(), text))
    fail_with_io(std::string("cannot write the sandbox's ") + name, errno);
}

Fd own_directory(int sandbox) {
  if (::mkdirat(sandbox, kDirectory, 0755) != 0 && errno != EEXIST)
    fail_with_io("cannot make the directory of the sandbox's names", errno);
  Fd directory(::openat(sandbox, kDirectory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) fail_with_io("cannot open the directory of the sandbox's names", errno);
  return directory;
}

}  // namespace

bool ImageNames::has(uint32_t number) const {
  return std::binary_search(numbers.begin(), numbers.end(), number);
}

ImageNames names_in(const std::optional<std::string>& text) {
  ImageNames names;
  if (!text || text->size() > kMostWritten) return names;
  for (std::string_view rest = *text; !rest.empty();) {
    const auto fields = split(next_part(rest, '\n'), ':');
    if (fields.size() < 3) continue;
    if (const auto number = number_in<uint32_t>(fields[2])) names.numbers.push_back(*number);
  }
  std::sort(names.numbers.begin(), names.numbers.end());
  names.text = *text;
  return names;
}

std::optional<std::string> file_in_archive(std::string_view archive) {
  using Step = TarReader::Step;
  TarReader tar;
  std::string content;
  for (auto step = tar.next(archive); step; step = tar.next(archive)) {
    if (*step == Step::kMore || *step == Step::kEnd) break;
    if (tar.member().kind != TarMember::Kind::kFile) break;
    if (*step == Step::kContent) content += tar.content();
    if (tar.content_left() == 0) return content;
  }
  return std::nullopt;
}

void prepare_names(Services& services, Parts& parts, int directory, const std::string& path,
                   const sdk::Call& call) {
  parts.passwd.clear();
  parts.group.clear();
  if (parts.podman) return;
  if (!parts.bind && parts.uid == 0) return;  // a rootless Engine: the program would own the whole volume
  std::shared_ptr<const ImageUsers> image;
  try {
    const std::string& name = image_of(services.config, parts);
    const std::string id = services.engine.inspect_image(name, call).value("Id", name);
    const auto turn = lock_for(services.preparing, call);
    auto& all = services.image_users;
    if (const auto known = all.find(id); known != all.end()) {
      image = known->second;
    } else {
      image = std::make_shared<const ImageUsers>(read_image(services, id, call));
      if (all.size() >= kMostImages) all.clear();
      all.emplace(id, image);
    }
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    services.warn("programs may find no name for their user: " + std::string(error.what()));
    return;
  }
  const std::string uid = std::to_string(parts.uid), gid = std::to_string(parts.gid);
  const std::string home =
      ":agent:" + std::string(kWorkspace) + ":" + (parts.shell.empty() ? "/bin/sh" : parts.shell);
  const auto add = [&](const ImageNames& names, uint32_t number, const char* target, const char* file,
                       const std::string& line) -> std::string {
    if (names.has(number) || !names.text || is_configured(services.config, target)) return {};
    const std::string text = line + "\n" + *names.text;  // first: the image may have another `agent`
    if (!parts.bind) return text;
    write_file(own_directory(directory).get(), file, text);
    return path + "/" + kDirectory + "/" + file;
  };
  parts.passwd = add(image->users, parts.uid, kPasswd, "passwd", "agent:x:" + uid + ":" + gid + home);
  parts.group = add(image->groups, parts.gid, kGroup, "group", "agent:x:" + gid + ":");
  const CopyPlace around{kEtc, true};
  if (!parts.bind && !(parts.passwd.empty() && parts.group.empty()) &&
      std::find(parts.copies.begin(), parts.copies.end(), around) == parts.copies.end())
    parts.copies.push_back(around);
}

void fill_names(Services& services, const Parts& parts, const std::string& id, const sdk::Call& call) {
  if (parts.bind || (parts.passwd.empty() && parts.group.empty())) return;
  const auto files = [&parts](const ByteSink& sink) {
    TarWriter tar(sink);
    if (!parts.passwd.empty()) tar.file({"passwd"}, parts.passwd);
    if (!parts.group.empty()) tar.file({"group"}, parts.group);
    tar.finish();
  };
  services.engine.put_archive(id, kEtc, files, call);
}

}  // namespace isogate::docker

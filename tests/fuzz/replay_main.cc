// In place of libFuzzer, for any compiler: runs the target once over every file of the given directories, and
// over each file's prefixes, where incremental parsers fail.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& bytes, size_t size) {
  // A copy of exactly that size, so that a sanitizer sees a read beyond it.
  const std::string own = bytes.substr(0, size);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(own.data()), own.size());
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      const size_t step = bytes.size() / 64 + 1;
      for (size_t size = 0; size < bytes.size(); size += step) run(bytes, size);
      run(bytes, bytes.size());
      ++files;
    }
  }
  std::printf("%zu files\n", files);
  return files == 0 ? 1 : 0;
}

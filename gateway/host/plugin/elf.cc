#include "gateway/host/plugin/elf.h"

#include <elf.h>

#include <cstring>
#include <optional>

#include "lib/text.h"

namespace isogate {
namespace {

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr unsigned kMachine = EM_RISCV;
#else
#error "which ELF machine is this?"
#endif

constexpr size_t kMaxHeaders = 512;
constexpr size_t kMaxDynamic = 4096;
constexpr size_t kMaxSymbols = 1u << 20;
constexpr size_t kMaxNamed = 256;  // listed search paths, libraries and exports

Error not_elf(const char* why) {
  return invalid(std::string("it is not a shared library for this machine: ") + why);
}

template <typename T>
std::optional<T> at(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Of a table that begins there.
template <typename T>
std::optional<T> element(std::string_view bytes, uint64_t table, size_t index) {
  uint64_t offset = 0;
  if (__builtin_add_overflow(table, index * sizeof(T), &offset)) return std::nullopt;
  return at<T>(bytes, offset);
}

std::optional<std::string_view> range(std::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || bytes.size() - offset < size) return std::nullopt;
  return bytes.substr(offset, size);
}

std::optional<std::string> text_at(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return std::nullopt;
  std::string_view rest = table.substr(offset);
  size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(rest.substr(0, end));
}

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}

  Result<ElfFacts> run() {
    if (auto read = read_header(); !read) return read.error();
    if (auto read = read_segments(); !read) return read.error();
    if (auto read = read_dynamic(); !read) return read.error();
    if (auto read = name_entries(); !read) return read.error();
    if (auto read = read_exports(); !read) return read.error();
    return std::move(facts_);
  }

 private:
  Result<void> read_header() {
    auto header = at<Elf64_Ehdr>(bytes_, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return not_elf("no ELF header");
    header_ = *header;
    if (header_.e_ident[EI_CLASS] != ELFCLASS64) return not_elf("it is not 64-bit");
    if (header_.e_ident[EI_DATA] != ELFDATA2LSB) return not_elf("it is not little-endian");
    if (header_.e_machine != kMachine) return not_elf("it was built for another processor");
    if (header_.e_type != ET_DYN) return not_elf("it is a program or an object file; link it with -shared");
    if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum > kMaxHeaders)
      return not_elf("its program headers are malformed");
    return {};
  }

  Result<void> read_segments() {
    for (size_t i = 0; i < header_.e_phnum; ++i) {
      auto segment = element<Elf64_Phdr>(bytes_, header_.e_phoff, i);
      if (!segment) return not_elf("its program headers are cut off");
      if (segment->p_type == PT_LOAD) loads_.push_back(*segment);
      if (segment->p_type != PT_DYNAMIC) continue;
      if (dynamic_) return not_elf("it has two dynamic sections");
      dynamic_ = *segment;
    }
    if (!dynamic_) return not_elf("it has no dynamic section");
    return {};
  }

  // The loader uses addresses, so this does, too.
  std::optional<uint64_t> offset_of(uint64_t address) const {
    for (const Elf64_Phdr& load : loads_) {
      if (address < load.p_vaddr || address - load.p_vaddr >= load.p_filesz) continue;
      uint64_t offset = 0;
      if (__builtin_add_overflow(load.p_offset, address - load.p_vaddr, &offset)) return std::nullopt;
      return offset;
    }
    return std::nullopt;
  }

  Result<void> read_dynamic() {
    auto start = offset_of(dynamic_->p_vaddr);
    if (!start) return not_elf("its dynamic section is nowhere");
    for (size_t i = 0; i < kMaxDynamic; ++i) {
      auto entry = element<Elf64_Dyn>(bytes_, *start, i);
      if (!entry) return not_elf("its dynamic section is cut off");
      if (entry->d_tag == DT_NULL) return {};
      take(*entry);
    }
    return not_elf("its dynamic section has no end");
  }

  void take(const Elf64_Dyn& entry) {
    switch (entry.d_tag) {
      case DT_STRTAB:
        strings_at_ = entry.d_un.d_ptr;
        break;
      case DT_STRSZ:
        strings_size_ = entry.d_un.d_val;
        break;
      case DT_RPATH:
      case DT_RUNPATH:
        paths_.push_back(entry.d_un.d_val);
        break;
      case DT_NEEDED:
        needed_.push_back(entry.d_un.d_val);
        break;
      case DT_AUDIT:
      case DT_DEPAUDIT:
      case DT_FILTER:
      case DT_AUXILIARY:
        facts_.loads_more = true;
        break;
      default:
        break;
    }
  }

  Result<void> name_entries() {
    if (paths_.empty() && needed_.empty()) return {};
    auto start = offset_of(strings_at_);
    auto table = start ? range(bytes_, *start, strings_size_) : std::nullopt;
    if (!table) return not_elf("its dynamic strings are nowhere");
    if (paths_.size() + needed_.size() > kMaxNamed) return not_elf("it has too many dependencies");
    for (uint64_t offset : paths_) {
      auto list = text_at(*table, offset);
      if (!list) return not_elf("its search path is cut off");
      for (const std::string_view path : split(*list, ':')) facts_.search_paths.emplace_back(path);
    }
    for (uint64_t offset : needed_) {
      auto name = text_at(*table, offset);
      if (!name) return not_elf("the name of a dependency is cut off");
      facts_.needed.push_back(std::move(*name));
    }
    return {};
  }

  // From the section headers, which strip keeps; without them exports are not checked.
  Result<void> read_exports() {
    if (header_.e_shnum == 0 || header_.e_shentsize != sizeof(Elf64_Shdr)) return {};
    for (size_t i = 0; i < header_.e_shnum; ++i) {
      auto section = element<Elf64_Shdr>(bytes_, header_.e_shoff, i);
      if (!section) return not_elf("its section headers are cut off");
      if (section->sh_type == SHT_DYNSYM) return read_symbols(*section);
    }
    return {};
  }

  Result<void> read_symbols(const Elf64_Shdr& section) {
    if (section.sh_link >= header_.e_shnum) return not_elf("its symbols have no names");
    auto names = element<Elf64_Shdr>(bytes_, header_.e_shoff, section.sh_link);
    auto table = names ? range(bytes_, names->sh_offset, names->sh_size) : std::nullopt;
    auto symbols = range(bytes_, section.sh_offset, section.sh_size);
    if (!table || !symbols || symbols->size() / sizeof(Elf64_Sym) > kMaxSymbols)
      return not_elf("its symbols are cut off");
    for (size_t i = 0; i < symbols->size() / sizeof(Elf64_Sym); ++i) {
      auto symbol = at<Elf64_Sym>(*symbols, i * sizeof(Elf64_Sym));
      if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) continue;
      if (ELF64_ST_VISIBILITY(symbol->st_other) != STV_DEFAULT) continue;
      auto name = text_at(*table, symbol->st_name);
      if (!name) return not_elf("the name of a symbol is cut off");
      if (facts_.exports.size() < kMaxNamed) facts_.exports.push_back(std::move(*name));
    }
    return {};
  }

  std::string_view bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> loads_;
  std::optional<Elf64_Phdr> dynamic_;
  uint64_t strings_at_ = 0, strings_size_ = 0;
  std::vector<uint64_t> paths_, needed_;
  ElfFacts facts_;
};

}  // namespace

Result<ElfFacts> read_elf(std::string_view bytes) { return Parser(bytes).run(); }

}  // namespace isogate

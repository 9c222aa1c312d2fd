// The primitives of codec.h: little-endian integers and length-prefixed strings, written to a string
// and taken off a string_view. Both remember the first failure, so that a message is one straight list
// of fields; ok() tells at the end. One owner, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace isogate::ipc {

class Writer {
 public:
  template <typename Integer>
  void number(Integer value) {
    auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
    char raw[sizeof bits];
    for (size_t i = 0; i < sizeof bits; ++i)
      raw[i] = static_cast<char>(static_cast<uint64_t>(bits) >> (8 * i));
    out_.append(raw, sizeof raw);
  }

  void text(std::string_view value, size_t cap) {
    if (value.size() > cap) ok_ = false;
    if (!ok_) return;
    number(static_cast<uint32_t>(value.size()));
    out_.append(value);
  }

  void refuse() { ok_ = false; }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  [[nodiscard]] size_t size() const { return out_.size(); }
  std::string take(size_t cap) { return ok_ && out_.size() <= cap ? std::move(out_) : std::string(); }

 private:
  std::string out_;
  bool ok_ = true;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  template <typename Integer>
  void number(Integer& value) {
    using Bits = std::make_unsigned_t<Integer>;
    std::string_view raw = take(sizeof(Bits));
    uint64_t bits = 0;
    for (size_t i = 0; i < raw.size(); ++i) bits |= uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    value = static_cast<Integer>(static_cast<Bits>(bits));
  }

  void text(std::string& value, size_t cap) {
    uint32_t size = 0;
    number(size);
    if (size > cap) refuse("a string over its cap");
    value.assign(take(size));
  }

  void refuse(const char* why) {
    if (why_ == nullptr) why_ = why;
    in_ = {};
  }

  // nullptr: everything was there and nothing is left over.
  [[nodiscard]] const char* failure() const {
    if (why_ != nullptr) return why_;
    return in_.empty() ? nullptr : "bytes after its end";
  }
  [[nodiscard]] bool ok() const { return why_ == nullptr; }
  [[nodiscard]] bool short_of_bytes() const { return why_ == kShort; }
  [[nodiscard]] std::string_view rest() const { return in_; }

 private:
  static constexpr const char* kShort = "it ends too early";

  std::string_view take(size_t bytes) {
    if (why_ != nullptr || bytes > in_.size()) {
      refuse(kShort);
      return {};
    }
    std::string_view taken = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return taken;
  }

  std::string_view in_;
  const char* why_ = nullptr;
};

}  // namespace isogate::ipc

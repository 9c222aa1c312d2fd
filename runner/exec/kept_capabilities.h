// The root capabilities that a plugin keeps, and why: one table per plugin, which its descriptor and its
// probe use.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace isogate {

// capabilities(7)
struct Kept {
  unsigned number;
  const char* name;
  const char* reason;
};

constexpr uint64_t bits_of(std::span<const Kept> table) {
  uint64_t bits = 0;
  for (const Kept& kept : table) bits |= uint64_t{1} << kept.number;
  return bits;
}

// The names of those that this process, being root, does not have; empty: none.
std::string missing_capabilities(std::span<const Kept> table);

}  // namespace isogate

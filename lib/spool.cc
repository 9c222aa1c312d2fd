#include "lib/spool.h"

#include <algorithm>

namespace isogate {

size_t Spool::room(uint64_t offset) const {
  const uint64_t wanted = next_ - std::clamp(offset, first(), next_);
  return most_ - static_cast<size_t>(wanted);
}

void Spool::append(std::string_view data) {
  if (data.size() > most_) {
    const size_t gone = data.size() - most_;
    next_ += gone;
    kept_ = 0;
    data.remove_prefix(gone);
  }
  grow(std::min(most_, kept_ + data.size()));
  while (!data.empty()) {
    const size_t at = next_ % ring_.size();
    const size_t n = std::min(data.size(), ring_.size() - at);
    data.copy(ring_.data() + at, n);
    next_ += n;
    kept_ = std::min(ring_.size(), kept_ + n);
    data.remove_prefix(n);
  }
}

void Spool::skip_to(uint64_t offset) {
  kept_ = 0;
  next_ = offset;
}

void Spool::narrow(size_t most) {
  if (most_ <= most) return;
  const std::string kept = text();
  const uint64_t offset = first();
  *this = Spool(most);
  next_ = offset;
  append(kept);
}

std::string_view Spool::from(uint64_t offset) const {
  if (offset >= next_) return {};
  const size_t at = offset % ring_.size();
  return std::string_view(ring_).substr(at, std::min<uint64_t>(next_ - offset, ring_.size() - at));
}

std::string Spool::text() const {
  std::string all;
  all.reserve(kept_);
  while (first() + all.size() < next_) all += from(first() + all.size());
  return all;
}

void Spool::grow(size_t needed) {
  if (needed <= ring_.size()) return;
  const std::string kept = text();
  ring_.assign(std::min(most_, std::max<size_t>({needed, 2 * ring_.size(), 4096})), '\0');
  uint64_t offset = first();
  for (size_t i = 0; i < kept.size(); ++i, ++offset) ring_[offset % ring_.size()] = kept[i];
}

}  // namespace isogate

#include "gateway/front/e2b/gunzip.h"

#include <zlib.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <new>

#include "gateway/front/base/api_error.h"

namespace isogate::front::e2b {
namespace asio = boost::asio;
namespace {

constexpr int kGzip = 15 + 16;     // the largest window, and gzip's header
constexpr size_t kTurn = 1 << 20;  // 32 KiB may hold 33 MiB

}  // namespace

struct Gunzip::Stream {
  z_stream z{};
  std::array<char, 32768> in{};
  bool at_end = false;
  size_t turn = 0;  // unpacked since others had theirs
};

Gunzip::Gunzip(ReadBody packed) : packed_(std::move(packed)), stream_(std::make_unique<Stream>()) {
  if (::inflateInit2(&stream_->z, kGzip) != Z_OK) throw std::bad_alloc();
}

Gunzip::~Gunzip() { ::inflateEnd(&stream_->z); }

asio::awaitable<size_t> Gunzip::read(char* data, size_t size) {
  if (stream_->turn >= kTurn) {
    stream_->turn = 0;
    co_await asio::post(asio::use_awaitable);
  }
  z_stream& z = stream_->z;
  z.next_out = reinterpret_cast<Bytef*>(data);
  z.avail_out = static_cast<uInt>(size);
  while (z.avail_out == size && !stream_->at_end) {
    if (z.avail_in == 0) {
      z.next_in = reinterpret_cast<Bytef*>(stream_->in.data());
      z.avail_in = static_cast<uInt>(co_await packed_(stream_->in.data(), stream_->in.size()));
      if (z.avail_in == 0) throw invalid_request("the body's gzip ends in the middle");
    }
    const int result = ::inflate(&z, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END) throw invalid_request("the body is no gzip");
    stream_->at_end = result == Z_STREAM_END;
  }
  // Nothing may stand behind it, and the body is read to its end.
  if (stream_->at_end && z.avail_out == size &&
      (z.avail_in != 0 || co_await packed_(stream_->in.data(), stream_->in.size()) != 0))
    throw invalid_request("the body has data after its gzip stream");
  stream_->turn += size - z.avail_out;
  co_return size - z.avail_out;
}

}  // namespace isogate::front::e2b

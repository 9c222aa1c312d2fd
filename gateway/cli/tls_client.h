// TLS for the command line's own calls; Poco's NetSSL stays in one file.
#pragma once

#include <Poco/Net/StreamSocket.h>

#include <string>

namespace isogate::cli {

// Shakes hands over a connected socket. The other side's certificate must be valid for `host`, a name or an
// address, and lead to an authority of ca_file (PEM), or of the system where that is empty. Throws
// Poco::Exception, which says why, also for a file that cannot be read.
Poco::Net::StreamSocket secured(const Poco::Net::StreamSocket& plain, const std::string& host,
                                const std::string& ca_file);

}  // namespace isogate::cli

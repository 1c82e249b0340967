// SPDX-License-Identifier: Apache-2.0
// A folder of a test, which goes with it.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

namespace testing {

/// An empty folder, which goes with it; in memory where it can be: what waits for a disk would wait for all who use it.
class own_folder {
 public:
  own_folder() {
    for (const char* in : {"/dev/shm", "/tmp"}) {
      path = std::string(in) + "/reshard_store_XXXXXX";
      if (::mkdtemp(path.data()) != nullptr) return;
    }
    FAIL("no folder can be made in /tmp");
  }
  own_folder(const own_folder&) = delete;
  ~own_folder() { static_cast<void>(std::system(("rm -rf " + path).c_str())); }
  std::string path;
};

}  // namespace testing

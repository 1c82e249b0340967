// SPDX-License-Identifier: Apache-2.0
// The store that an address names.
#pragma once

#include <memory>
#include <string>

#include <reshard/elastic/store.hpp>

namespace elastic {

/// A store of some kind, alive as long as this.
struct named_store {
  virtual ~named_store() = default;
  virtual reshard::any_store any() = 0;
};
/// HOST:PORT of a served store; http://HOST:PORT of etcd's gateway. Refused where this build has no etcd.
std::unique_ptr<named_store> store_of(const std::string& url);

}  // namespace elastic

// SPDX-License-Identifier: Apache-2.0
// What is read from JSON: the model and the cluster.
#include <string>

#include <reshard/io/cluster_json.hpp>
#include <reshard/io/hf_config.hpp>

#include "commands.hpp"

namespace reshard::tool {

model model_asked_for(const arguments& given) { return load_model(given.model); }
cluster cluster_asked_for(const std::string& text) { return load_cluster(text); }

}  // namespace reshard::tool

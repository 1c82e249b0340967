// SPDX-License-Identifier: Apache-2.0
// What the demo prints.
#pragma once

#include <string>
#include <vector>

#include <reshard/model/model.hpp>

#include "demo_figures.hpp"
#include "demo_judge.hpp"

namespace elastic {

/// {"members":4,"steps","samples","replicas","changes":[{"what","who","epoch","pause_s","switch_s","detection_s",
/// "known_s","recovery_s"}],"right":true,"wrong":[]}; what is of a death is null of other changes.
std::string demo_json(const job_verdict& v, const std::vector<change_figures>& changes);
/// A table of 80 columns, and a line that says whether all was right, or some that say what was not.
std::string demo_text(const job_verdict& v, const std::vector<change_figures>& changes);

}  // namespace elastic

// Embedding and head that all ranks of a pipeline compute, as parallel.vocabulary: pipeline says
// (plugins/vocabulary_passes has what they do, schedule/vocabulary_actions.h when).
#pragma once

#include <optional>
#include <string>

#include "gantry/planner/layout_costs.h"
#include "gantry/schedule/schedule.h"

namespace gantry::planner {

// What each rank does for a microbatch, and holds. All ranks reduce what they looked up, and the gradient before the
// head; their times are those of the passes that send it.
VocabularyPart shared_vocabulary(const Workload& workload, const Layout& layout, const Cluster& cluster,
                                 const CostTable& table);

// What stages hold of both ends yet: positions, norms, projections.
HeldParameters first_without_table(const ModelParameters& parameters, const Workload& workload, const Layout& layout);
HeldParameters last_without_head(const ModelParameters& parameters, const Workload& workload, const Layout& layout);

// The schedule as the runtime makes it, with the passes in its rows.
schedule::Schedule schedule_with_vocabulary(const Workload& workload, const Layout& layout, int microbatches);

// The most microbatches of which a rank keeps logits at once.
int logits_at_once(const schedule::Schedule& schedule, int rank);

// Why the layout can't share them; nothing where it can, or does not.
std::optional<std::string> vocabulary_objection(const Workload& workload, const Layout& layout);

}  // namespace gantry::planner

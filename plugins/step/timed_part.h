// The times of layers, which `schedule.layers: balanced` and reports read.
#pragma once

#include "gantry/core/base/steady_seconds.h"
#include "gantry/plugins/step/step_part.h"
#include "gantry/schedule/measured.h"

namespace gantry {

class TimedPart final : public StepPart {
 public:
  // `times`: forward times are added to it; not owned.
  TimedPart(schedule::ForwardTimes& times, int layers) : times_(times) { times_.layers.resize(layers, 0); }

  StageOutput forward(ForwardCall& call, const NextForward& next) override {
    const double begin = steady_seconds();
    double first = -1, last = begin, others = 0;
    call.report.layer_ran = [&](int layer, double from, double to) {
      times_.layers.at(layer) += to - from - (call.other_seconds - others);
      others = call.other_seconds;
      if (first < 0) first = from;
      last = to;
    };
    StageOutput output = next();
    if (call.is_first && first >= 0) times_.before += first - begin;
    if (call.is_last) times_.after += steady_seconds() - last;
    return output;
  }

 private:
  schedule::ForwardTimes& times_;
};

}  // namespace gantry

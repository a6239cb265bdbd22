// The generators of pipeline schedules. Each lists computations; messages.h then adds the messages between them.
// Read next: parallel/pipeline/schedule.cpp, parallel/pipeline/schedules.h (the names), then parallel/pipeline/check.h.
#pragma once

#include "parallel/pipeline/actions.h"

namespace trireme::pipeline {

/// All forwards, then all backwards (Huang et al. 2019, "GPipe"): every rank keeps every micro-batch's activations.
Schedule gpipe(int ranks, int microbatches);

/// One forward, one backward (Narayanan et al. 2019, "PipeDream", in its flushing form, Narayanan et al. 2021, section
/// 2.2): after a warm-up of P - 1 - r forwards, rank r alternates, and so keeps at most P - r micro-batches. The bubble
/// is GPipe's, (P - 1) / M of ideal time.
Schedule one_f_one_b(int ranks, int microbatches);

/// 1F1B with `chunks` stages on every rank (Narayanan et al. 2021, section 2.2): a micro-batch passes each rank V =
/// `chunks` times, and filling the pipeline takes 1/V of the time. The bubble is (P - 1) / (V M), for V times the
/// messages and more activations alive. A rank takes a run of P micro-batches through one chunk, then the same run
/// through the next. If P does not divide M, runs are longer, up to 2 P - 1, with the same bubble: every count works
/// without padding.
Schedule interleaved(int ranks, int microbatches, int chunks);

/// ZB-H1 (Qi et al. 2023, section 2.3): 1F1B with backward split. Rank r delays the weight part of a micro-batch by r
/// backwards; so weight parts fill the time in which a rank would wait at the end. With forward, input and weight parts
/// of equal cost the bubble is a third of 1F1B's, (P - 1) / 3 M, and no rank keeps more than P micro-batches, as 1F1B's
/// first rank does.
Schedule zero_bubble(int ranks, int microbatches);

/// Forwards only, for a validation loss or a sample.
Schedule forward_only(int ranks, int microbatches, int chunks = 1);

}  // namespace trireme::pipeline

// The conversation of `generate --chat`: questions from standard input, replies to standard output.
// Read next: train/gpt/chat.h, train/program/input_lines.h.
#pragma once

#include "parallel/comm/process_group.h"
#include "train/gpt/chat.h"

namespace trireme {

/// Answers each line of standard input until its end or /exit; /clear begins a new conversation. The first rank reads
/// and writes. A question that the template or the tokenizer refuses is reported, and the conversation goes on without
/// it. Says once in each conversation that it has become longer than the model's context. A signal (leave_asked()) ends
/// the reply, or the wait for a question, and the conversation; but on a terminal SIGINT ends only the reply, if there
/// is one under way. Returns 0; ExitCode::retryable after a signal; or, if a question was refused and standard input is
/// no terminal, the exit code for it. Collective over `world`.
int converse(ProcessGroup& world, ChatSession& session);

}  // namespace trireme

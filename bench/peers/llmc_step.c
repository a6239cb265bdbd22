// The peer of step_bench: training steps of GPT-2 by llm.c, whose train_gpt2.c is included from its checkout.
//
//   gcc -O3 -ffast-math -march=native -fopenmp -I LLMC llmc_step.c -lm -o llmc_step    (llmc.py does it)
//   OMP_NUM_THREADS=2 ./llmc_step MODEL.bin BATCH LENGTH WARM_UP
//
// A step is that of llm.c's main(): forward, zero_grad, backward, update (it has no clipping), on random tokens. Reads
// numbers of steps from standard input and answers in lines of JSON: see bench/turns.h.
#define TESTING  // excludes main()
#include "train_gpt2.c"

#include <stdio.h>
#include <sys/resource.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct rusage usage(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u;
}

static void random_tokens(int* tokens, int count, int vocab) {
  static unsigned long long state = 1;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens[i] = (int)((state >> 33) % (unsigned long long)vocab);
  }
}

struct Run {
  GPT2 model;
  int *inputs, *targets, batch, length, done;
};

// Runs `count` steps, and prints the time of each except in the warm-up.
static void steps(struct Run* run, long count, int warm_up) {
  for (; count > 0; --count) {
    random_tokens(run->inputs, run->batch * run->length, run->model.config.vocab_size);
    random_tokens(run->targets, run->batch * run->length, run->model.config.vocab_size);
    const struct rusage before = usage();
    const double start = now();
    gpt2_forward(&run->model, run->inputs, run->targets, (size_t)run->batch, (size_t)run->length);
    gpt2_zero_grad(&run->model);
    gpt2_backward(&run->model);
    gpt2_update(&run->model, 1e-4F, 0.9F, 0.999F, 1e-8F, 0.0F, ++run->done);
    const double seconds = now() - start;
    const struct rusage after = usage();
    if (warm_up) continue;
    printf("{\"seconds\":%.9f,\"minor_faults\":%ld,\"major_faults\":%ld}\n", seconds,
           after.ru_minflt - before.ru_minflt, after.ru_majflt - before.ru_majflt);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  if (argc != 5) return fprintf(stderr, "usage: llmc_step MODEL.bin BATCH LENGTH WARM_UP\n"), 64;
  struct Run run = {.batch = atoi(argv[2]), .length = atoi(argv[3])};
  gpt2_build_from_checkpoint(&run.model, argv[1]);
  run.inputs = malloc(sizeof(int) * (size_t)(run.batch * run.length));
  run.targets = malloc(sizeof(int) * (size_t)(run.batch * run.length));

  steps(&run, atoi(argv[4]), 1);
  printf("{\"ready\":{\"tokens\":%d,\"parameters\":%zu}}\n", run.batch * run.length, run.model.num_parameters);
  fflush(stdout);
  for (char line[32]; fgets(line, sizeof line, stdin) != NULL;) steps(&run, strtol(line, NULL, 10), 0);
  printf("{\"end\":{\"peak_rss\":%ld}}\n", 1024 * usage().ru_maxrss);
  return 0;
}

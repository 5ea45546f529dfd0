/* What all parts of the pretended NVML share: its errors, and the words that tell it what to pretend.
 *
 * What each word means stands in ../words.py. They are separated by white space, and read anew at every question: from
 * the environment variable FAKE_NVML where it is set, else from the file `control` beside this library. Without
 * either there are two healthy GPUs.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stdint.h>

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    INVALID = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    TOO_SMALL = 7,
    TIMED_OUT = 10,
    NO_SUCH_FUNCTION = 13,
    LOST = 15,
    OTHER_VERSION = 25
};

enum { MOST_GPUS = 64, NAP_MICROSECONDS = 10000 };

/* All words of this moment. The text is this thread's until its next question. */
const char *words(void);

/* What follows `name=` in the text, "" after a bare word, NULL where it is missing. */
const char *find_in(const char *text, const char *name);

/* The same for a word of one GPU, as `1:name=`. */
const char *find_of_in(const char *text, long gpu, const char *name);

/* The same in the words of this moment. */
const char *find(const char *name);
const char *find_of(long gpu, const char *name);

/* The number behind a word, `otherwise` where the word is missing. */
long number(const char *name, long otherwise);
long number_of(long gpu, const char *name, long otherwise);

/* Handles are indices from 1 on, because none of NVML's is 0. */
static inline long gpu_of(long handle) { return handle - 1; }

/* What a GPU says before it says anything else: nothing at all, that it is lost, an error, or SUCCESS. */
int answer(long handle);

/* Never returns while no GPU answers. For what even a lost GPU still says: its names. */
void hang_if_told(void);

#endif

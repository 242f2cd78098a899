/* Classify digits without Python, on two threads, two images at a time.

       inlaid export examples/digits/digits.onnx --dim batch=1:8 -o libdigits.so
       cc -std=c11 -I. examples/c/classify.c -o classify -L. -ldigits -lpthread -Wl,-rpath,'$ORIGIN'
       ./classify */

#include "libdigits.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, PIXELS = 64, CLASSES = 10, THREADS = 2 };

static _Alignas(64) float images[BATCH * PIXELS], scores[BATCH * CLASSES];
static _Alignas(128) unsigned char team[DIGITS_TEAM_BYTES(THREADS)];

/* Each further thread serves the team until the process ends. */
static void *serve(void *number) {
    digits_worker(team, (intptr_t)number);
    return NULL;
}

int main(void) {
    digits_team(team, THREADS);
    for (intptr_t number = 1; number < THREADS; number++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)number) != 0) return 1;
        pthread_detach(thread);
    }

    /* The second image is a vertical stroke. */
    for (int row = 0; row < 8; row++) images[PIXELS + row * 8 + 3] = images[PIXELS + row * 8 + 4] = 16;

    void *workspace = aligned_alloc(64, (DIGITS_WORKSPACE_BYTES + 63) / 64 * 64);
    char message[256];
    if (digits_run_on(team, BATCH, images, scores, workspace, message) != 0) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    for (int image = 0; image < BATCH; image++) {
        int best = 0;
        for (int digit = 1; digit < CLASSES; digit++)
            if (scores[image * CLASSES + digit] > scores[image * CLASSES + best]) best = digit;
        printf("image %d: %d (%.2f)\n", image, best, scores[image * CLASSES + best]);
    }
    free(workspace);
    return 0;
}

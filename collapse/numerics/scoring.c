/* Passes over scores, each in one go: what scored.py and ranking.py do by one operation after another.

   Scores lie by row, then by sample. B samples, n rows in groups of `group`, d dimensions. */

#include <math.h>
#include <stdint.h>

#define SAMPLES 128 /* of a strip, at most: their scores of a block stay in the cache of a core */
#define ABREAST 4   /* rows whose exponentials are summed in float32 */
#define FEW 16      /* samples that are tested, or numbers that are summed, side by side; divides every strip */

static inline float larger(float a, float b) { return a > b ? a : b; }

/* Samples of a strip: as many as leave none of the threads without one. */
static int64_t strip_of(int64_t B, int threads) {
    int64_t strip = SAMPLES;
    while (strip > FEW && strip * threads > B) strip /= 2;
    return strip;
}

/* exp(x) of x <= 0 to two units in the last place; exp(-87) of smaller x. 2^n times a polynomial of the remainder of
   x / log 2, whose relative error is below 4e-9. */
static inline float exponential(float x) {
    const float reached = larger(x, -87.0f);
    const float n = rintf(reached * 1.44269504088896341f);
    const float r = (reached - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.38145e-3f;
    p = p * r + 8.36878e-3f;
    p = p * r + 4.166839e-2f;
    p = p * r + 1.666652e-1f;
    p = p * r + 4.9999993e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    union { float value; int32_t bits; } power = {p};
    power.bits += (int32_t)n << 23;
    return power.value;
}

/* Scored.take_in: least points to the bounds of the block's part, after which those of later parts follow. */
void take_in(const float *scores, const float *bias, int64_t n, int64_t B, int64_t group, const float *slope,
             const float *more, const float *norm, float *highest, float *least, int64_t parts, float *top,
             double *others, int threads) {
    const int64_t strip = strip_of(B, threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < B; first += strip) {
        const int64_t width = B - first < strip ? B - first : strip;
        float known[SAMPLES], most[SAMPLES], here[SAMPLES];
        for (int64_t b = 0; b < SAMPLES; b++) known[b] = most[b] = -INFINITY;
        for (int64_t g = 0; g * group < n; g++) {
            const int64_t after = (g + 1) * group < n ? (g + 1) * group : n;
            for (int64_t b = 0; b < SAMPLES; b++) here[b] = -INFINITY;
            for (int64_t row = g * group; row < after; row++) {
                const float *score = scores + row * B + first;
                const float added = bias ? bias[row] : 0.0f;
                for (int64_t b = 0; b < width; b++) here[b] = larger(score[b] + added, here[b]);
            }
            for (int64_t b = 0; b < width; b++) {
                highest[g * B + first + b] = here[b];
                known[b] = larger(here[b] - (slope[g] * norm[first + b] + more[g]), known[b]);
                most[b] = larger(here[b], most[b]);
            }
        }
        for (int64_t part = 0; part < parts; part++)
            for (int64_t b = 0; b < width; b++)
                least[part * B + first + b] = larger(known[b], least[part * B + first + b]);
        if (!others) continue;
        double part[SAMPLES]; /* of exponentials below 1, which would lose digits beside a 1 */
        int32_t ones[SAMPLES]; /* the others, but for one of the highest score */
        for (int64_t b = 0; b < width; b++) {
            const float before = top[first + b];
            const int higher = most[b] > before;
            most[b] = top[first + b] = larger(most[b], before);
            part[b] = others[first + b];
            if (higher) part[b] = (part[b] + 1) * exp((double)before - (double)most[b]);
            ones[b] = -higher;
        }
        for (int64_t row = 0; row < n; row += ABREAST) {
            const float *score[ABREAST];
            float added[ABREAST]; /* of a row beyond the last one: minus infinity */
            for (int64_t i = 0; i < ABREAST; i++) {
                const int64_t at = row + i < n ? row + i : row;
                score[i] = scores + at * B + first;
                added[i] = at < row + i ? -INFINITY : bias ? bias[at] : 0.0f;
            }
            for (int64_t b = 0; b < width; b++) {
                float below = 0.0f;
                int32_t equal = 0;
                for (int64_t i = 0; i < ABREAST; i++) {
                    const float x = score[i][b] + added[i] - most[b];
                    below += x < 0.0f ? exponential(x) : 0.0f;
                    equal += x < 0.0f ? 0 : 1;
                }
                part[b] += below;
                ones[b] += equal;
            }
        }
        for (int64_t b = 0; b < width; b++) others[first + b] = part[b] + ones[b];
    }
}

/* How many groups of each sample may hold its highest score; and for FEW samples and a group, whether one of them is
   such a sample. */
void count_open(const float *highest, const float *least, const int64_t *part_of, const float *most, int64_t groups,
                int64_t B, int64_t *counts, uint8_t *open, int threads) {
    const int64_t strip = strip_of(B, threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < B; first += strip) {
        const int64_t width = B - first < strip ? B - first : strip;
        int32_t count[SAMPLES] = {0};
        for (int64_t g = 0; g < groups; g++) {
            const float *score = highest + g * B + first, *bound = least + part_of[g] * B + first;
            for (int64_t few = 0; few < width; few += FEW) {
                const int64_t after = few + FEW < width ? few + FEW : width;
                int32_t any = 0;
                for (int64_t b = few; b < after; b++) {
                    const int32_t is_open = score[b] >= bound[b] - most[first + b];
                    count[b] += is_open;
                    any |= is_open;
                }
                open[(first + few) / FEW * groups + g] = any;
            }
        }
        for (int64_t b = 0; b < width; b++) counts[first + b] = count[b];
    }
}

/* The rows of those groups that may have the highest score. Pairs of a sample begin at its place: of each, the sample,
   the group, and for each row of it whether it may. */
void find_near(const float *highest, const float *least, const int64_t *part_of, const float *most,
               const uint8_t *open, const float *slope, const float *more, const float *norm, const float *rows,
               const float *bias, const float *x, int64_t groups, int64_t B, int64_t group, int64_t d,
               const int64_t *places, int64_t *samples, int64_t *found, uint8_t *near, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < B; first += FEW) {
        const int64_t width = B - first < FEW ? B - first : FEW;
        int64_t place[FEW];
        for (int64_t b = 0; b < width; b++) place[b] = places[first + b];
        for (int64_t g = 0; g < groups; g++) {
            if (!open[first / FEW * groups + g]) continue;
            const float *score = highest + g * B + first, *bound = least + part_of[g] * B + first;
            for (int64_t b = 0; b < width; b++) {
                if (!(score[b] >= bound[b] - most[first + b])) continue;
                const float *of_sample = x + (first + b) * d;
                const float reached = bound[b] - (slope[g] * norm[first + b] + more[g]);
                for (int64_t i = 0; i < group; i++) {
                    const float *row = rows + (g * group + i) * d;
                    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                    for (int64_t j = 0; j < d; j++) sum += row[j] * of_sample[j];
                    near[place[b] * group + i] = sum + (bias ? bias[g * group + i] : 0.0f) >= reached;
                }
                samples[place[b]] = first + b;
                found[place[b]++] = g;
            }
        }
    }
}

/* The products of K rows of a matrix with K samples, in float64. All are added in one order: equal rows have equal
   products. */
#define PRODUCTS_OF(NAME, TYPE)                                                                                       \
    void NAME(const TYPE *matrix, const int64_t *rows, const double *x, const int64_t *samples, int64_t K, int64_t d, \
              double *products, int threads) {                                                                        \
        _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t k = 0; k < K; k++) {           \
            const TYPE *row = matrix + rows[k] * d;                                                                   \
            const double *sample = x + samples[k] * d;                                                                \
            double sums[FEW] = {0}, sum = 0;                                                                          \
            int64_t j = 0;                                                                                            \
            for (; j + FEW <= d; j += FEW)                                                                            \
                for (int64_t i = 0; i < FEW; i++) sums[i] += (double)row[j + i] * sample[j + i];                      \
            for (; j < d; j++) sum += (double)row[j] * sample[j];                                                     \
            for (int64_t i = 0; i < FEW; i++) sum += sums[i];                                                         \
            products[k] = sum;                                                                                        \
        }                                                                                                             \
    }

PRODUCTS_OF(products_of_floats, float)
PRODUCTS_OF(products_of_doubles, double)

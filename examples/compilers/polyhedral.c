/* A polyhedral compiler that asks a policy whether to fuse the loops of a nest, and for the sizes of its tiles:
 *   cc -o polyhedral polyhedral.c $(pkg-config --cflags --libs policybridge-c isl)
 *   ./polyhedral socket:policybridge.sock matmul 96 128 64 >nest.c && cc -O2 -o nest nest.c && ./nest
 *
 * isl computes the dependences, schedules that respect them, and C from the schedule. The program that is written
 * prints a checksum of the result's bits. It is the same for every advice: both schedules that the policy chooses
 * between obey all dependences, and only bands whose loops may be permuted are tiled. Without advice, loops are fused,
 * and tiles are 32 wide. */

#include <inttypes.h>
#include <isl/aff.h>
#include <isl/ast_build.h>
#include <isl/fixed_box.h>
#include <isl/flow.h>
#include <isl/map.h>
#include <isl/options.h>
#include <isl/schedule.h>
#include <isl/schedule_node.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/union_map.h>
#include <isl/union_set.h>
#include <policybridge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOPS = 4, ARRAYS = 4, DIMENSIONS = 2, TILE = 32 };

/* A nest as sets and relations of isl, and the C of its statements. M, N and K are its sizes. */
struct nest {
  const char *name, *domain, *arrays, *reads, *writes, *order, *code, *result;
};

static const struct nest nests[] = {
    {"matmul", "[M,N,K] -> { Z[i,j] : 0 <= i < M and 0 <= j < N; U[i,j,k] : 0 <= i < M and 0 <= j < N and 0 <= k < K }",
     "[M,N,K] -> { A[i,j] : 0 <= i < M and 0 <= j < K; B[i,j] : 0 <= i < K and 0 <= j < N; "
     "C[i,j] : 0 <= i < M and 0 <= j < N }",
     "{ U[i,j,k] -> C[i,j]; U[i,j,k] -> A[i,k]; U[i,j,k] -> B[k,j] }", "{ Z[i,j] -> C[i,j]; U[i,j,k] -> C[i,j] }",
     "{ Z[i,j] -> [0,i,j,0]; U[i,j,k] -> [1,i,j,k] }",
     "static float A[M][K], B[K][N], C[M][N];\n"
     "#define Z(i, j) C[i][j] = 0\n"
     "#define U(i, j, k) C[i][j] += A[i][k] * B[k][j]\n",
     "C"},
    /* Two passes of a filter: over columns, then over rows. */
    {"blur", "[M,N] -> { X[i,j] : 0 <= i < M and 0 < j < N - 1; Y[i,j] : 0 < i < M - 1 and 0 < j < N - 1 }",
     "[M,N] -> { A[i,j] : 0 <= i < M and 0 <= j < N; B[i,j] : 0 <= i < M and 0 <= j < N; "
     "C[i,j] : 0 <= i < M and 0 <= j < N }",
     "{ X[i,j] -> A[i,l] : j - 1 <= l <= j + 1; Y[i,j] -> B[l,j] : i - 1 <= l <= i + 1 }",
     "{ X[i,j] -> B[i,j]; Y[i,j] -> C[i,j] }", "{ X[i,j] -> [0,i,j]; Y[i,j] -> [1,i,j] }",
     "static float A[M][N], B[M][N], C[M][N];\n"
     "#define X(i, j) B[i][j] = (A[i][j - 1] + A[i][j] + A[i][j + 1]) / 3\n"
     "#define Y(i, j) C[i][j] = (B[i - 1][j] + B[i][j] + B[i + 1][j]) / 3\n",
     "C"},
    /* K steps of a diffusion; its loops can be tiled only after isl has skewed them. */
    {"heat", "[M,N,K] -> { P[t,i,j] : 0 <= t < K and 0 < i < M - 1 and 0 < j < N - 1; "
             "Q[t,i,j] : 0 <= t < K and 0 < i < M - 1 and 0 < j < N - 1 }",
     "[M,N] -> { A[i,j] : 0 <= i < M and 0 <= j < N; B[i,j] : 0 <= i < M and 0 <= j < N }",
     "{ P[t,i,j] -> A[i,j]; P[t,i,j] -> A[i-1,j]; P[t,i,j] -> A[i+1,j]; P[t,i,j] -> A[i,j-1]; P[t,i,j] -> A[i,j+1]; "
     "Q[t,i,j] -> B[i,j] }",
     "{ P[t,i,j] -> B[i,j]; Q[t,i,j] -> A[i,j] }", "{ P[t,i,j] -> [t,0,i,j]; Q[t,i,j] -> [t,1,i,j] }",
     "static float A[M][N], B[M][N];\n"
     "#define P(t, i, j) B[i][j] = (A[i][j] + A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]) / 5\n"
     "#define Q(t, i, j) A[i][j] = B[i][j]\n",
     "A"}};

struct feature {
  const char *name;
  const int64_t *values, shape[3];
  size_t rank;
};

/* Asks one question, in a session of its own. Without advice, `advice` stays as it is. */
static void ask(pb_connection *server, const char *policy, const struct feature *features, size_t count,
                int64_t *advice, int64_t size) {
  const pb_tensor *answer = NULL;
  pb_options *options = NULL;
  pb_runner *runner = NULL;
  pb_error error;
  pb_status status = pb_options_new(policy, &options, &error);
  for (size_t i = 0; i < count && !status; ++i)
    status = pb_options_add_feature(options, features[i].name, PB_INT64, features[i].shape, features[i].rank, &error);
  if (!status)
    status = pb_options_set_advice(options, policy, PB_INT64, &size, 1, &error);
  if (!status)
    status = pb_runner_open(server, options, &runner, &error);
  for (size_t i = 0; i < count && !status; ++i) {
    pb_tensor *tensor = pb_runner_feature(runner, i);
    status = pb_tensor_set(tensor, PB_INT64, features[i].values, pb_tensor_count(tensor), NULL, 0, &error);
  }
  if (!status)
    status = pb_runner_evaluate(runner, &answer, &error);
  if (status)
    fprintf(stderr, "no advice about %s: %s\n", policy, error.message);
  else
    memcpy(advice, pb_tensor_values(answer, PB_INT64), sizeof *advice * (size_t)size);
  pb_runner_free(runner);
  pb_options_free(options);
}

/* Properties of a nest. */
struct known {
  pb_connection *server;
  isl_union_set *domain, *arrays;
  isl_union_map *accesses, *dependences;
};

/* Where `source` and `sink` touch the same place, and `source` comes first. */
static isl_union_map *flow(isl_union_map *sink, isl_union_map *source, isl_union_map *order) {
  isl_union_access_info *info = isl_union_access_info_from_sink(isl_union_map_copy(sink));
  info = isl_union_access_info_set_may_source(info, isl_union_map_copy(source));
  info = isl_union_access_info_set_schedule_map(info, isl_union_map_copy(order));
  isl_union_flow *found = isl_union_access_info_compute_flow(info);
  isl_union_map *dependences = isl_union_flow_get_may_dependence(found);
  isl_union_flow_free(found);
  return dependences;
}

static isl_schedule *schedule(const struct known *known, int fused) {
  isl_ctx *context = isl_union_set_get_ctx(known->domain);
  isl_options_set_schedule_serialize_sccs(context, !fused);
  isl_options_set_schedule_whole_component(context, fused);
  isl_schedule_constraints *wanted = isl_schedule_constraints_on_domain(isl_union_set_copy(known->domain));
  wanted = isl_schedule_constraints_set_validity(wanted, isl_union_map_copy(known->dependences));
  wanted = isl_schedule_constraints_set_coincidence(wanted, isl_union_map_copy(known->dependences));
  wanted = isl_schedule_constraints_set_proximity(wanted, isl_union_map_copy(known->dependences));
  return isl_schedule_constraints_compute_schedule(wanted);
}

/* Counts of a schedule: bands, their loops, and those without a dependence of their own. */
struct shape {
  int64_t bands, loops, coincident;
};

static isl_bool count_band(isl_schedule_node *node, void *user) {
  struct shape *shape = user;
  if (isl_schedule_node_get_type(node) != isl_schedule_node_band)
    return isl_bool_true;
  isl_size loops = isl_schedule_node_band_n_member(node);
  shape->bands += 1;
  shape->loops += loops;
  for (int d = 0; d < loops; ++d)
    shape->coincident += isl_schedule_node_band_member_get_coincident(node, d) == isl_bool_true;
  return isl_bool_true;
}

static isl_schedule *fuse(const struct known *known) {
  isl_schedule *schedules[2] = {schedule(known, 0), schedule(known, 1)};
  struct shape shapes[2] = {{0, 0, 0}, {0, 0, 0}};
  for (int fused = 0; fused < 2; ++fused)
    isl_schedule_foreach_schedule_node_top_down(schedules[fused], count_band, &shapes[fused]);
  const int64_t statements = isl_union_set_n_set(known->domain);
  const struct feature features[] = {{"statements", &statements, {1}, 1},
                                     {"separate", &shapes[0].bands, {3}, 1},
                                     {"fused", &shapes[1].bands, {3}, 1}};
  int64_t advice = 1;
  ask(known->server, "fusion", features, 3, &advice, 1);
  fprintf(stderr, "%s\n", advice ? "fused" : "not fused");
  isl_schedule_free(schedules[!advice]);
  return schedules[advice != 0];
}

/* The features of a band that is to be tiled. An iteration touches a box of each array: it begins at `coefficients`
 * times the loops' counters, plus a constant, and is `boxes` long. The whole array is `lengths` long. */
struct band {
  int64_t extents[LOOPS], coincident[LOOPS];
  int64_t coefficients[ARRAYS][DIMENSIONS][LOOPS], boxes[ARRAYS][DIMENSIONS], lengths[ARRAYS][DIMENSIONS];
  int arrays, loops;
  const struct known *known;
};

static int64_t number(isl_val *value) {
  const int64_t number = isl_val_is_int(value) == isl_bool_true ? isl_val_get_num_si(value) : 0;
  isl_val_free(value);
  return number;
}

/* The sizes of a box around a set, or around each set that a relation gives; 0 where none has a fixed size. */
static void measure(isl_fixed_box *box, int64_t *sizes, int count) {
  isl_multi_val *size = isl_fixed_box_get_size(box);
  for (int k = 0; k < count && isl_fixed_box_is_valid(box) == isl_bool_true && k < isl_multi_val_size(size); ++k)
    sizes[k] = number(isl_multi_val_get_at(size, k));
  isl_multi_val_free(size);
  isl_fixed_box_free(box);
}

static isl_stat describe_array(isl_map *touched, void *user) {
  struct band *band = user;
  const int array = band->arrays++;
  if (array < ARRAYS) {
    isl_space *space = isl_space_range(isl_map_get_space(touched));
    isl_set *all = isl_union_set_extract_set(band->known->arrays, space);
    measure(isl_set_get_simple_fixed_box_hull(all), band->lengths[array], DIMENSIONS);
    isl_set_free(all);
    isl_fixed_box *box = isl_map_get_range_simple_fixed_box_hull(touched);
    isl_multi_aff *offset = isl_fixed_box_get_offset(box);
    measure(box, band->boxes[array], DIMENSIONS);
    for (int k = 0; k < DIMENSIONS && k < isl_multi_aff_size(offset); ++k) {
      isl_aff *start = isl_multi_aff_get_at(offset, k);
      for (int d = 0; d < band->loops; ++d)
        band->coefficients[array][k][d] = number(isl_aff_get_coefficient_val(start, isl_dim_in, d));
      isl_aff_free(start);
    }
    isl_multi_aff_free(offset);
  }
  isl_map_free(touched);
  return isl_stat_ok;
}

static isl_schedule_node *tile(isl_schedule_node *node, void *user) {
  const struct known *known = user;
  if (isl_schedule_node_get_type(node) != isl_schedule_node_band ||
      isl_schedule_node_band_get_permutable(node) != isl_bool_true)
    return node;
  struct band band = {.loops = isl_schedule_node_band_n_member(node), .known = known};
  if (band.loops < 2 || band.loops > LOOPS)
    return node;
  isl_union_map *loops = isl_schedule_node_band_get_partial_schedule_union_map(node);
  loops = isl_union_map_intersect_domain(loops, isl_schedule_node_get_domain(node));
  isl_set *iterations = isl_set_from_union_set(isl_union_map_range(isl_union_map_copy(loops)));
  int64_t advice[LOOPS] = {TILE, TILE, TILE, TILE};
  measure(isl_set_get_simple_fixed_box_hull(iterations), band.extents, band.loops);
  for (int d = 0; d < band.loops; ++d)
    band.coincident[d] = isl_schedule_node_band_member_get_coincident(node, d) == isl_bool_true;
  isl_set_free(iterations);
  isl_union_map *touched = isl_union_map_apply_domain(isl_union_map_copy(known->accesses), loops);
  isl_union_map_foreach_map(touched, describe_array, &band);
  isl_union_map_free(touched);
  const struct feature features[] = {{"extents", band.extents, {LOOPS}, 1},
                                     {"coincident", band.coincident, {LOOPS}, 1},
                                     {"coefficients", band.coefficients[0][0], {ARRAYS, DIMENSIONS, LOOPS}, 3},
                                     {"boxes", band.boxes[0], {ARRAYS, DIMENSIONS}, 2},
                                     {"lengths", band.lengths[0], {ARRAYS, DIMENSIONS}, 2}};
  ask(known->server, "tiles", features, 5, advice, LOOPS);
  isl_multi_val *sizes = isl_multi_val_zero(isl_schedule_node_band_get_space(node));
  for (int d = 0; d < band.loops; ++d) {
    /* A size outside of the loop leaves it untiled, like a tile of the whole loop. */
    const int64_t size = advice[d] >= 1 && advice[d] <= band.extents[d] ? advice[d] : band.extents[d];
    fprintf(stderr, "%s%" PRId64, d ? " x " : "tiles: ", size);
    sizes = isl_multi_val_set_at(sizes, d, isl_val_int_from_si(isl_schedule_node_get_ctx(node), (long)size));
  }
  fprintf(stderr, "\n");
  return isl_schedule_node_band_tile(node, sizes);
}

static void print(isl_schedule *schedule, const struct nest *nest, const long *sizes) {
  isl_ctx *context = isl_schedule_get_ctx(schedule);
  isl_ast_build *build = isl_ast_build_alloc(context);
  isl_ast_node *ast = isl_ast_build_node_from_schedule(build, schedule);
  isl_printer *printer = isl_printer_set_output_format(isl_printer_to_file(context, stdout), ISL_FORMAT_C);
  printf("#include <stdio.h>\nenum { M = %ld, N = %ld, K = %ld };\n%s", sizes[0], sizes[1], sizes[2], nest->code);
  printf("#define count(array) (sizeof array / sizeof array[0][0])\n");
  printer = isl_ast_node_print_macros(ast, printer);
  printf("__attribute__((noinline)) static void nest(void) {\n");
  printer = isl_ast_node_print(ast, printer, isl_ast_print_options_alloc(context));
  printf("}\nint main(void) {\n  unsigned sum = 0;\n"
         "  for (unsigned i = 0; i < count(A); ++i)\n    ((float *)A)[i] = (float)(i %% 11);\n"
         "  for (unsigned i = 0; i < count(B); ++i)\n    ((float *)B)[i] = (float)(i %% 7);\n  nest();\n"
         "  for (unsigned i = 0; i < sizeof %s; ++i)\n    sum = sum * 31 + ((unsigned char *)%s)[i];\n"
         "  printf(\"%%u\\n\", sum);\n}\n", nest->result, nest->result);
  isl_printer_free(printer);
  isl_ast_node_free(ast);
  isl_ast_build_free(build);
}

static void compile(isl_ctx *context, pb_connection *server, const struct nest *nest, const long *sizes) {
  char text[128];
  snprintf(text, sizeof text, "[M,N,K] -> { : M = %ld and N = %ld and K = %ld }", sizes[0], sizes[1], sizes[2]);
  const char *places[] = {nest->domain, nest->arrays};
  isl_union_set *sets[2];
  for (int i = 0; i < 2; ++i) {
    sets[i] = isl_union_set_read_from_str(context, places[i]);
    sets[i] = isl_union_set_intersect_params(sets[i], isl_set_read_from_str(context, text));
  }
  isl_union_set *domain = sets[0];
  const char *texts[] = {nest->reads, nest->writes, nest->order};
  isl_union_map *maps[3];
  for (int i = 0; i < 3; ++i) {
    maps[i] = isl_union_map_read_from_str(context, texts[i]);
    maps[i] = isl_union_map_intersect_domain(maps[i], isl_union_set_copy(domain));
  }
  isl_union_map *reads = maps[0], *writes = maps[1], *order = maps[2];
  isl_union_map *dependences = flow(reads, writes, order);
  dependences = isl_union_map_union(dependences, flow(writes, reads, order));
  dependences = isl_union_map_union(dependences, flow(writes, writes, order));
  struct known known = {server, domain, sets[1], isl_union_map_union(reads, writes), dependences};
  print(isl_schedule_map_schedule_node_bottom_up(fuse(&known), tile, &known), nest, sizes);
  isl_union_map_free(order);
  isl_union_map_free(dependences);
  isl_union_map_free(known.accesses);
  isl_union_set_free(known.arrays);
  isl_union_set_free(domain);
}

int main(int count, char **words) {
  const struct nest *nest = NULL;
  long sizes[3] = {0, 0, 0};
  pb_connection *server = NULL;
  pb_error error;
  for (size_t i = 0; count == 6 && i < sizeof nests / sizeof *nests; ++i)
    if (!strcmp(words[2], nests[i].name))
      nest = &nests[i];
  for (int i = 0; nest && i < 3; ++i) {
    sizes[i] = strtol(words[3 + i], NULL, 10);
    if (sizes[i] < 4 || sizes[i] > 4096)
      nest = NULL;
  }
  if (!nest) {
    fprintf(stderr, "usage: polyhedral ADDRESS matmul|blur|heat M N K, with sizes from 4 to 4096\n");
    return 2;
  }
  if (pb_connect(words[1], NULL, &server, &error)) {
    fprintf(stderr, "%s\n", error.message);
    return 2;
  }
  isl_ctx *context = isl_ctx_alloc();
  compile(context, server, nest, sizes);
  isl_ctx_free(context);
  pb_connection_free(server);
  return 0;
}

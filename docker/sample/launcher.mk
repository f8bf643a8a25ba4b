# The launcher policybridge-run, without the gRPC and the plugins of a real build.
CXXFLAGS ?= -std=c++17 -Oz
objects := $(patsubst %.cpp,%.o,$(wildcard $(ONLY)*.cpp))

all: $(objects)

%.o: %.cpp
	$(CXX) $(CXXFLAGS) -I../cpp/include -I../cpp/src -DPOLICYBRIDGE_VERSION='"0"' \
	  -DPOLICYBRIDGE_INSTALLED_PLUGINS='""' -c $< -o $@

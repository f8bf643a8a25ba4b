# The C++ client library, which the compilers of the stack build where they are given nothing else.
# ONLY=s builds the files alone whose names begin so.
CXXFLAGS ?= -std=c++17 -Oz
objects := $(patsubst %.cpp,%.o,$(wildcard src/$(ONLY)*.cpp))

all: $(objects)

%.o: %.cpp
	$(CXX) $(CXXFLAGS) -Iinclude -c $< -o $@

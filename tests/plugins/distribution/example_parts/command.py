"""The command ``policybridge greet``."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name")


def run(arguments: argparse.Namespace) -> int:
    """Greet, and give the exit status."""
    print(f"hello {arguments.name}")
    return 0

"""What sources and sinks may say: names and values of options, by connector and format."""

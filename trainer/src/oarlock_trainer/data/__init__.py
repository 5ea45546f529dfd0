"""From a folder of pictures to the batches of a rank."""

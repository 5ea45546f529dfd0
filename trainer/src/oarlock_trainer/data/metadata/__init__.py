"""What is known of every picture before it is decoded: size, caption, bucket."""
